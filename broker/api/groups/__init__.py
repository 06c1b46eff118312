"""Requests about groups, to the shard of the group's partition."""
