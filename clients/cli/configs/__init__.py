"""`kraftrio config`: settings of everything that has settings."""
