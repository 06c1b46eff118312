"""Produce: from the request to the logs, and back when the records are replicated."""
