"""What several families of handlers share. Imports no handler."""
