"""Frames of Kafka's protocol in the bytes of sockets, for observers.

Called by: `simulated` and `tapped`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

FRAME_SIZE: Final = struct.Struct(">I")
"""What stands before each frame: its size in bytes; no node takes one of 2 GB."""


class FrameCutter:
    """Cuts one direction of a connection into frames.

    Attributes:
        wanted_bytes: how many have to be there until the next frame is whole, as far as is known.
    """

    __slots__ = ("_rest", "wanted_bytes")

    def __init__(self) -> None:
        self._rest = bytearray()  # grows in place: a frame may come in very many pieces
        self.wanted_bytes = FRAME_SIZE.size

    def cut(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that are whole with this chunk, without their sizes."""
        rest = self._rest
        rest += chunk
        position, size = 0, len(rest)
        while size - position >= self.wanted_bytes:
            end = position + FRAME_SIZE.size + FRAME_SIZE.unpack_from(rest, position)[0]
            if end > size:
                self.wanted_bytes = end - position
                break
            yield bytes(rest[position + FRAME_SIZE.size : end])
            position = end
            self.wanted_bytes = FRAME_SIZE.size
        del rest[:position]
