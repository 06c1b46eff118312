"""`kraftrio transaction`: show transactions, and end by hand those that hang."""
