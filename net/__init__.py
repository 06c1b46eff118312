"""Sockets as a port, what waits to be sent, and connections to other nodes.

Imports `wire` and `base`.
"""
