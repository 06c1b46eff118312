"""Coordinators: a runtime that knows no kind of them, and the group coordinator above it."""
