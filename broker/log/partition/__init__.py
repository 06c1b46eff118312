"""The log of one partition: appends, reads, truncation, retention, recovery."""
