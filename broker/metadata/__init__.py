"""The cluster as this broker knows it."""
