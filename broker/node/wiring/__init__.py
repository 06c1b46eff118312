"""Puts the parts of one broker together."""
