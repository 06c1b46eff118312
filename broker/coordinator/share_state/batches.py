"""Combines state batches of a share partition: what was known, and what a leader writes.

The result is Kafka's (PersisterStateBatchCombiner), since it lies in the log: batches in the order
of their offsets, none below the start offset, no two that overlap, and no two that could be one
(some of these Kafka joins with the next write only). Where an old and a new batch have something to
say about an offset, the one with the higher delivery count counts; of equal counts the one with the
higher delivery state.

What is known already is in that form, so only the batches that a write touches are combined again.
Called by `state`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from kraftrio.broker.share_state import NO_START_OFFSET, ShareStateBatch

Batches = tuple[ShareStateBatch, ...]

_first_offset = attrgetter("first_offset")
_last_offset = attrgetter("last_offset")


class _Piece(NamedTuple):
    """A batch in the order that Kafka combines them in."""

    first: int
    last: int
    delivery_count: int
    delivery_state: int

    @property
    def rank(self) -> tuple[int, int]:
        """Which of two pieces counts where both have an offset."""
        return self.delivery_count, self.delivery_state


def combine(known: Batches, written: Sequence[ShareStateBatch], start_offset: int) -> Batches:
    """Combine known batches, themselves a result of this function, with written ones.

    Args:
        start_offset: what lies below is dropped; NO_START_OFFSET: nothing is.
    """
    low, high = 0, 0
    if written:
        first = min(batch.first_offset for batch in written) - 1
        last = max(batch.last_offset for batch in written) + 1
        low = bisect_left(known, first, key=_last_offset)
        high = max(bisect_right(known, last, key=_first_offset), low)
        known = (
            known[:low] + _combine_all((*known[low:high], *written), start_offset) + known[high:]
        )
    return _from_start(known, start_offset)


def _from_start(batches: Batches, start_offset: int) -> Batches:
    """Drop what lies below the start offset of batches that are in order."""
    if start_offset == NO_START_OFFSET:
        return batches
    index = bisect_left(batches, start_offset, key=_last_offset)
    batches = batches[index:]
    if batches and batches[0].first_offset < start_offset:
        batches = (batches[0]._replace(first_offset=start_offset), *batches[1:])
    return batches


def _combine_all(batches: Iterable[ShareStateBatch], start_offset: int) -> Batches:
    """Combine batches in whatever order."""
    heap = [
        _Piece(max(first, start_offset), last, count, state)
        for first, last, state, count in batches
        if start_offset == NO_START_OFFSET or last >= start_offset
    ]
    heapq.heapify(heap)
    combined: list[_Piece] = []
    while heap:
        piece = heapq.heappop(heap)
        while heap and _touches(piece, heap[0]):
            for part in _parts(piece, heapq.heappop(heap)):
                heapq.heappush(heap, part)
            piece = heapq.heappop(heap)
        if combined and _touches(combined[-1], piece):
            piece = piece._replace(first=combined.pop().first)
        combined.append(piece)
    return tuple(map(_batch, combined))


def _batch(piece: _Piece) -> ShareStateBatch:
    return ShareStateBatch(piece.first, piece.last, piece.delivery_state, piece.delivery_count)


def _touches(piece: _Piece, following: _Piece) -> bool:
    """Whether two pieces overlap, or could be one."""
    if following.first <= piece.last:
        return True
    return following.first == piece.last + 1 and following.rank == piece.rank


def _parts(piece: _Piece, following: _Piece) -> list[_Piece]:
    """What two pieces that touch each other come to; `following` begins no earlier."""
    if following.rank == piece.rank:
        return [piece._replace(last=max(piece.last, following.last))]
    if following.first == piece.first and following.last == piece.last:
        return [following]
    if following.rank < piece.rank:
        if following.last <= piece.last:
            return [piece]
        return [piece, following._replace(first=piece.last + 1)]
    if following.first == piece.first:  # and it reaches further
        return [following]
    parts = [piece._replace(last=following.first - 1), following]
    if following.last < piece.last:
        parts.append(piece._replace(first=following.last + 1))
    return parts
