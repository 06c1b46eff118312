"""Parts of a segment's file that answers name instead of holding them.

Owns: `FileSlice`, bytes of a file until they are sent, and `FileSlices`, those of one file that
somebody still holds. Rules:
1. What a slice gives is what lay there when it was made. Appends change nothing; a truncation ends
   the slices that it reaches into, the file's closing ends all of them.
2. A file that is renamed or deleted gives its bytes until it is closed.
3. Bytes that a truncation may reach (above the high watermark) are read, not sent from the file:
   a socket would keep the file's own memory, and what is written there anew would leave with it.

`segment` makes them. They are used on the event loop; only `load` runs in threads.
"""

from __future__ import annotations

from weakref import WeakSet

from kraftrio.broker.log.files import File
from kraftrio.wire.stored_bytes import StoredBytes, StoredBytesGone


class FileSlice(StoredBytes):
    """See the module."""

    __slots__ = ("__weakref__", "_file", "_is_settled", "_position", "_size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int, *, is_settled: bool) -> None:
        self._file: File | None = file
        self._position = position
        self._size_bytes = size_bytes
        self._is_settled = is_settled

    def __repr__(self) -> str:
        return f"FileSlice({self._file!r}, {self._position}, {self._size_bytes} bytes)"

    def __len__(self) -> int:
        return self._size_bytes

    @property
    def end_position(self) -> int:
        """Where it ends in the file."""
        return self._position + self._size_bytes

    def _open(self) -> File:
        if self._file is None:
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
        file = self._file
        if file is not None:
            file.load(self._position + start, size_bytes)

    def end(self) -> None:
        """Give no more bytes."""
        self._file = None


class FileSlices:
    """The slices of one file that somebody holds."""

    __slots__ = ("_slices",)

    def __init__(self) -> None:
        self._slices: WeakSet[FileSlice] = WeakSet()

    def make(self, file: File, position: int, size_bytes: int, *, is_settled: bool) -> FileSlice:
        """Name a part of the file; `is_settled`: no truncation will reach it."""
        made = FileSlice(file, position, size_bytes, is_settled=is_settled)
        self._slices.add(made)
        return made

    def end_behind(self, position: int) -> None:
        """The file is cut at `position`, or closed: 0."""
        for piece in self._slices:
            if piece.end_position > position:
                piece.end()
