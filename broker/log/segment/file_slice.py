"""Parts of a segment's file that answers refer to instead of holding their bytes: `FileSlice`.

Rules:
1. A slice gives the bytes that were there when it was made. Appends change nothing; a truncation
   makes the slices invalid that it reaches into, and closing the file makes all of them invalid.
2. A file that is renamed or deleted gives its bytes until it is closed.
3. Bytes that a truncation may reach (above the high watermark) are read, not sent from the file:
   a socket refers to the page cache of the file, and would send what is written there later.

`log_file` makes them, and notes in `Truncations` what makes them invalid. They are used on the
event loop; only `load` and what `loading_ahead` returns run in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kraftrio.broker.log.files import File
from kraftrio.wire.stored_bytes import StoredBytes, StoredBytesGone

Truncations: TypeAlias = list[int]
"""The positions at which a file was truncated so far, in order; closing the file counts as 0."""


class FileSlice(StoredBytes):
    """See the module; `is_settled` says that no truncation will reach it."""

    __slots__ = ("_file", "_is_settled", "_known_count", "_position", "_size_bytes", "_truncations")

    def __init__(
        self,
        file: File,
        truncations: Truncations,
        position: int,
        size_bytes: int,
        *,
        is_settled: bool,
    ) -> None:
        self._file = file
        self._truncations = truncations
        self._known_count = len(truncations)
        self._position = position
        self._size_bytes = size_bytes
        self._is_settled = is_settled

    def __repr__(self) -> str:
        return f"FileSlice({self._file!r}, {self._position}, {self._size_bytes} bytes)"

    def __len__(self) -> int:
        return self._size_bytes

    def _open(self) -> File:
        truncations, known = self._truncations, self._known_count
        end = self._position + self._size_bytes
        if len(truncations) != known and min(truncations[known:]) < end:
            raise StoredBytesGone("the log was truncated, or its file closed, while it was read")
        return self._file

    def file_range(self, start: int) -> tuple[int, int] | None:
        file = self._open()
        descriptor = file.descriptor() if self._is_settled else None
        return None if descriptor is None else (descriptor, self._position + start)

    def read(self, start: int, size_bytes: int) -> bytes:
        file = self._open()
        try:
            data = file.read_at(self._position + start, size_bytes)
        except OSError as error:
            raise StoredBytesGone(f"cannot read {file}: {error}") from error
        if len(data) < size_bytes:
            raise StoredBytesGone(f"{file} is shorter than it was")
        return data

    def is_at_hand(self, start: int, size_bytes: int) -> bool:
        return self._open().is_cached(self._position + start, size_bytes)

    def load(self, start: int, size_bytes: int) -> None:
        self._file.load(self._position + start, size_bytes)

    def loading_ahead(self, start: int) -> Callable[[], None] | None:
        return self._file.loading_ahead(self._position + start)
