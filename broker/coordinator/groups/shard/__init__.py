"""The shard of the group coordinator: joins groups of all kinds and the offsets they commit."""
