"""The newest offset of each key in a part of a log: what compaction decides by, in bounded memory.

Kafka keeps a hash of every key; here short keys are kept as they are and long ones as a digest of
40 bytes, which no short key can equal. What an entry costs is estimated, the bound is
log.cleaner.dedupe.buffer.size. Once it is full the cleaner compacts by what it has and goes on from
there in another run. Used by `cleaner`.
"""

from __future__ import annotations

from hashlib import blake2b

_LONGEST_PLAIN_KEY = 32
_DIGEST_BYTES = 40
# The bytes object, the int, and a dict slot at its usual load, on a 64-bit machine.
_ENTRY_BYTES = 160


class OffsetMap:
    """Keys to offsets; the map has all keys from `start_offset` to `latest_offset`."""

    __slots__ = ("_limit_bytes", "_offsets", "latest_offset", "size_bytes")

    def __init__(self, limit_bytes: int, start_offset: int = 0) -> None:
        self._limit_bytes = limit_bytes
        self._offsets: dict[bytes, int] = {}
        self.size_bytes = 0
        self.latest_offset = start_offset - 1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self._limit_bytes

    def put(self, key: bytes, offset: int) -> None:
        """Note that the key is at this offset too; offsets come in rising order."""
        if len(key) > _LONGEST_PLAIN_KEY:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        if key not in self._offsets:
            self.size_bytes += _ENTRY_BYTES + len(key)
        self._offsets[key] = offset

    def get(self, key: bytes) -> int:
        """The newest offset of the key, -1 when it is not here."""
        if len(key) > _LONGEST_PLAIN_KEY:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)
