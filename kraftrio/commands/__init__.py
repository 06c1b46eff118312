"""The tree of commands of `kraftrio`, above both the broker and the clients."""
