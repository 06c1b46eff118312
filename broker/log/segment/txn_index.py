"""Aborted transactions of one segment: Kafka's `.txnindex` format (KIP-98).

Owns the entries' bytes and the search among them; the segment reads and writes the file. An entry
is 34 bytes: int16 version 0, int64 producer id, first offset, last offset (that of the abort
marker) and last stable offset at the time the marker was appended.

Rules: entries are appended in the order of their markers, so last offsets and last stable offsets
rise from entry to entry, while first offsets need not.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.primitives import Buffer

ENTRY_BYTES = 34
_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_LAST_OFFSET = attrgetter("last_offset")


class AbortedTxn(NamedTuple):
    """One aborted transaction, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedSearch(NamedTuple):
    """Transactions found in one segment; ``complete`` says that later segments hold no more."""

    transactions: list[AbortedTxn]
    complete: bool


def encode_aborted(transaction: AbortedTxn) -> bytes:
    """Return the entry's bytes."""
    return _ENTRY.pack(_VERSION, *transaction)


def encode_index(transactions: Iterable[AbortedTxn]) -> bytes:
    """Return the bytes of a whole index."""
    return b"".join([_ENTRY.pack(_VERSION, *transaction) for transaction in transactions])


def decode_index(data: Buffer) -> list[AbortedTxn]:
    """Read a whole index.

    Raises:
        CorruptBatchError: an entry is incomplete, or its version unknown: the index must be
            rebuilt from the log.
    """
    if len(data) % ENTRY_BYTES:
        raise CorruptBatchError(
            f"{len(data)} bytes are no whole number of transaction index entries"
        )
    entries: list[AbortedTxn] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptBatchError(f"unknown version {version} of a transaction index entry")
        entries.append(AbortedTxn(*fields))
    return entries


def check_index(entries: Iterable[AbortedTxn], base_offset: int) -> None:
    """Check that the entries can belong to a segment that starts at ``base_offset``.

    Raises:
        CorruptBatchError: they cannot.
    """
    previous = -1
    for entry in entries:
        if entry.last_offset < base_offset or entry.last_offset <= previous:
            raise CorruptBatchError(
                f"aborted transaction with last offset {entry.last_offset} after {previous} "
                f"in a segment from {base_offset} on"
            )
        if not 0 <= entry.first_offset <= entry.last_offset:
            raise CorruptBatchError(f"impossible aborted transaction {entry}")
        previous = entry.last_offset


def search(
    entries: Sequence[AbortedTxn], fetch_offset: int, upper_bound_offset: int
) -> AbortedSearch:
    """Return the aborted transactions that touch ``[fetch_offset, upper_bound_offset)``.

    The search is complete once an entry's last stable offset reaches the upper bound: everything
    before that offset was decided when the entry was written.
    """
    found: list[AbortedTxn] = []
    start = bisect_left(entries, fetch_offset, key=_LAST_OFFSET)
    for index in range(start, len(entries)):
        entry = entries[index]
        if entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return AbortedSearch(found, True)
    return AbortedSearch(found, False)


def entries_before(entries: Iterable[AbortedTxn], offset: int) -> Iterator[AbortedTxn]:
    """Yield the entries that survive a truncation of the log to ``offset``."""
    for entry in entries:
        if entry.last_offset >= offset:
            return
        yield entry
