"""Figures of the process for monitoring: which there are, gathered from the shells, over HTTP."""
