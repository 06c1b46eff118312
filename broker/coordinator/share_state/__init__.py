"""The core of the share coordinator: the state of share partitions, and its records."""
