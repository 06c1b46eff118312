"""The data path of share groups, and the state of share partitions."""
