"""Compaction: which logs, what is kept, how fast."""
