"""Builds a process from its roles, starts and stops its parts in order."""
