"""Idempotent producers of one log: sequences, snapshots, and replay after a start."""
