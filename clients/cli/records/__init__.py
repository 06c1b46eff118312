"""`kraftrio produce` and `kraftrio consume`: lines into records, and records into lines."""
