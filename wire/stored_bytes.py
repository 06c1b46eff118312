"""Bytes of a message that stay where they are stored until a socket takes them.

Owns: `StoredBytes`, what a records field may hold instead of bytes, and `StoredPart`, some of them.
The codec writes its length and hands it on as a piece of its own; `clients/send_queue` sends it;
the log makes them (`file_slice`).

Rules
1. Its length never changes: it is on the wire before the first byte is.
2. Bytes that are not there any more as they were raise `StoredBytesGone`, also half-way: the
   connection can only be closed then.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeAlias, cast

from kraftrio.wire.primitives import Buffer


class StoredBytesGone(Exception):
    """The bytes were cut off, their file is closed, or the disk does not give them."""


class StoredBytes:
    """See the module; positions count from its first byte. No ABC: `isinstance` must be quick."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def file_range(self, start: int) -> tuple[int, int] | None:
        """A file descriptor and the position in that file where the bytes from `start` on lie.

        None where they have to be read, since there is no such file or they may still change.
        """

    @abstractmethod
    def read(self, start: int, size_bytes: int) -> bytes:
        """Read that many bytes."""

    @abstractmethod
    def is_at_hand(self, start: int, size_bytes: int) -> bool:
        """Can they be read or sent now, without waiting for a disk?  Their ends always can."""

    @abstractmethod
    def load(self, start: int, size_bytes: int) -> None:
        """Bring them into memory, as far as that helps. A worker thread may call it."""

    def loading_ahead(self, start: int) -> Callable[[], None] | None:
        """What a worker thread should do meanwhile for the sender of the bytes from `start` on.

        It brings into memory what lies behind these bytes. None: nothing needs that now.
        """
        return None


class StoredPart(StoredBytes):
    """A part of stored bytes."""

    __slots__ = ("_size_bytes", "_start", "_whole")

    def __init__(self, whole: StoredBytes, start: int, size_bytes: int) -> None:
        assert 0 <= start <= start + size_bytes <= len(whole)
        self._whole = whole
        self._start = start
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def file_range(self, start: int) -> tuple[int, int] | None:
        return self._whole.file_range(self._start + start)

    def read(self, start: int, size_bytes: int) -> bytes:
        return self._whole.read(self._start + start, size_bytes)

    def is_at_hand(self, start: int, size_bytes: int) -> bool:
        return self._whole.is_at_hand(self._start + start, size_bytes)

    def load(self, start: int, size_bytes: int) -> None:
        self._whole.load(self._start + start, size_bytes)

    def loading_ahead(self, start: int) -> Callable[[], None] | None:
        return self._whole.loading_ahead(self._start + start)


Piece: TypeAlias = Buffer | StoredBytes
"""A part of what is to be sent."""


def joined_pieces(out: list[Piece], large: list[int]) -> list[Piece]:
    """Join what an encoder gave, but for the pieces at these positions."""
    if not large:
        body = b"".join(cast("list[Buffer]", out))
        return [body] if body else []
    parts: list[Piece] = []
    start = 0
    for index in large:
        parts.append(b"".join(cast("list[Buffer]", out[start:index])))
        parts.append(out[index])
        start = index + 1
    if start < len(out):
        parts.append(b"".join(cast("list[Buffer]", out[start:])))
    return [part for part in parts if len(part)]
