"""Requests that wait for a partition, and who is notified when it changes."""
