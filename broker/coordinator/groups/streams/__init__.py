"""Streams groups (KIP-1071): members of an application, its topology, the tasks that they share."""
