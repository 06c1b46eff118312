"""Access control lists: who may do what."""
