"""Faults in a world of virtual time: on demand, and by seed."""
