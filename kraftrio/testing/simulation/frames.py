"""Frames of Kafka's protocol in what sockets carry, for those who look on.

Called by: `kraftrio.testing.explaining.exchanges`, `kraftrio.testing.faults.requests`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

FRAME_SIZE: Final = struct.Struct(">i")
"""What stands before each frame: its size in bytes."""


class FrameCutter:
    """Cuts one direction of a connection into frames."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that are whole with this chunk, without their sizes."""
        data = self._rest + chunk if self._rest else chunk
        position, size = 0, len(data)
        while size - position >= FRAME_SIZE.size:
            end = position + FRAME_SIZE.size + FRAME_SIZE.unpack_from(data, position)[0]
            if end > size:
                break
            yield data[position + FRAME_SIZE.size : end]
            position = end
        self._rest = data[position:]
