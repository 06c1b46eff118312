"""What is done from time to time: flushes, checkpoints, retention, compaction."""
