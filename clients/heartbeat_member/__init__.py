"""A member of a group that lives by heartbeats alone: of consumer groups and of share groups."""
