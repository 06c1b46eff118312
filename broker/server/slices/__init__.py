"""Work that takes long, in slices between which everybody else gets a turn."""
