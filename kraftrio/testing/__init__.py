"""Brokers for tests, with real sockets or in virtual time, and what tests do with them."""
