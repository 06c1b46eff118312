"""What groups have in common whose partitions the broker assigns: consumer, share, streams."""
