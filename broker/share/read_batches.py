"""The batches of a read, as far as their headers have to be looked at: `ReadBatches`.

What is acquired is decided by headers alone, and mostly by the first few: a read may name many
megabytes in a file, of which a member takes the first hundreds of records.  So headers are read
when they are asked for, some of a file at a time.

Made by `LedSharePartition` for each read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kraftrio.broker.log.segment.txn_index import AbortedTxn
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header
from kraftrio.wire.stored_bytes import Piece, StoredBytes, StoredPart

_WINDOW_BYTES: Final = 4 << 10


class _Placed(NamedTuple):
    position: int
    header: BatchHeader


class ReadBatches:
    """See the module.

    Args:
        records: whole batches, at least one.
        next_offset: what follows the last of them.
        aborted: transactions that were aborted, with all that touch these batches.
    """

    __slots__ = ("_aborted", "_placed", "_records", "_size", "_window", "_window_at", "last_offset")

    def __init__(
        self, records: Piece, next_offset: int, aborted: Sequence[AbortedTxn] = ()
    ) -> None:
        self._records = records
        self._size = len(records)
        self._aborted = aborted
        self._placed: list[_Placed] = []
        self._window: Buffer = b"" if isinstance(records, StoredBytes) else records
        self._window_at = 0
        self.last_offset = next_offset - 1

    @property
    def first_offset(self) -> int:
        return self._at(0).header.base_offset

    def _at(self, index: int) -> _Placed:
        while len(self._placed) <= index:
            self._look_at_next()
        return self._placed[index]

    def _look_at_next(self) -> None:
        placed = self._placed
        position = placed[-1].position + placed[-1].header.size_bytes if placed else 0
        at = position - self._window_at
        if isinstance(self._records, StoredBytes) and at + BATCH_OVERHEAD > len(self._window):
            size = min(_WINDOW_BYTES, self._size - position)
            self._window, self._window_at, at = self._records.read(position, size), position, 0
        placed.append(_Placed(position, parse_header(self._window, at)))

    def _all(self) -> Iterator[_Placed]:
        index = end = 0
        while end < self._size:
            placed = self._at(index)
            end = placed.position + placed.header.size_bytes
            index += 1
            yield placed

    def end_of_batch_at(self, offset: int) -> int:
        for _, header in self._all():
            if header.last_offset >= offset:
                return header.last_offset if header.base_offset <= offset else offset
        return offset

    def base_offsets(self, last_offset: int) -> Iterator[int]:
        for _, header in self._all():
            if header.base_offset > last_offset:
                return
            yield header.base_offset

    def aborted(self, last_offset: int) -> Iterator[tuple[int, int]]:
        if not self._aborted:
            return
        by_producer: dict[int, list[AbortedTxn]] = {}
        for one in self._aborted:
            by_producer.setdefault(one.producer_id, []).append(one)
        for _, header in self._all():
            if header.base_offset > last_offset:
                return
            if not header.is_transactional or header.is_control:
                continue
            for one in by_producer.get(header.producer_id, ()):
                if one.first_offset <= header.base_offset <= one.last_offset:
                    yield header.base_offset, header.last_offset
                    break

    def part_with(self, first_offset: int, last_offset: int) -> Piece:
        """The batches that have these offsets, and those between."""
        start = end = 0
        for position, header in self._all():
            if header.base_offset > last_offset:
                break
            if header.base_offset <= first_offset:
                start = position
            end = position + header.size_bytes
        records = self._records
        if start == 0 and end == self._size:
            return records
        if isinstance(records, StoredBytes):
            return StoredPart(records, start, end - start)
        return memoryview(records)[start:end]
