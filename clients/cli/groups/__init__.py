"""`kraftrio group`: groups of every kind, their lag, and where they go on."""
