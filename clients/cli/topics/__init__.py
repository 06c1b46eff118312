"""`kraftrio topic`: list and change topics."""
