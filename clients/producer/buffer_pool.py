"""The producer's memory (`buffer_memory`): what batches hold and what is free.

Sends that have to wait for memory get it in order: while one waits no other takes any.

Sans-IO. Called by: `accumulator`, `producer`.
"""

from __future__ import annotations


class BufferPool:
    """Counts bytes; nothing is allocated."""

    __slots__ = ("free_bytes", "total_bytes", "waiters")

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes
        self.waiters = 0  # how many wait for memory

    def reserve(self, size_bytes: int) -> bool:
        """Take memory; False if there is not as much, or a sender waits for memory."""
        return not self.waiters and self.grant(size_bytes)

    def grant(self, size_bytes: int) -> bool:
        """Take memory for the send that has waited longest; False if there is not as much."""
        if size_bytes > self.free_bytes:
            return False
        self.free_bytes -= size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give memory back."""
        self.free_bytes += size_bytes
