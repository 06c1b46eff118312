"""Assignors of the broker: who gets which partitions of the topics that a group subscribes to."""
