"""`kraftrio transaction`: what is open, and ending by hand what hangs."""
