"""The groups of one partition of `__consumer_offsets`, whatever their kind, and their offsets."""
