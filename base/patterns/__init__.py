"""Regular expressions of clients: those of RE2, matched in time that is linear in the text."""
