"""What opening a log, appending to it and reading it give back."""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.wire.primitives import Buffer
from kraftrio.wire.stored_bytes import Piece


class AppendInfo(NamedTuple):
    """Where an append went; for a duplicate where its first copy is."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 for topics of CreateTime, but for a duplicate its timestamp
    log_start_offset: int
    duplicate: bool
    max_timestamp: int
    size_bytes: int


class LogRead(NamedTuple):
    """Whole batches, and the offset to read from next."""

    records: Buffer
    next_offset: int


class LogSlice(NamedTuple):
    """Whole batches, as a slice of the file if they are large, and the offset to read from next."""

    records: Piece
    next_offset: int


class RecoveryEvent(NamedTuple):
    """One thing that opening the log repaired."""

    action: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.action} {self.path}: {self.reason}"
