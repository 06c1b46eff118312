"""The groups of one partition of `__consumer_offsets`, and the offsets they commit."""
