"""One segment of a log: its file of batches and its indexes."""
