"""Connections to brokers, used by the broker's own shells and by Trio programs."""
