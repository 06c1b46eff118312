"""`kraftrio topic`: what topics there are, and changing them."""
