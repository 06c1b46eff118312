"""Periodic work on the logs: flushes, checkpoints, retention, compaction."""
