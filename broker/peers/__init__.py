"""Requests to the other brokers of the cluster, and to this one by the same call."""
