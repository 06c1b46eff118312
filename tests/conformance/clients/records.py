"""The records that the clients' tests send, and the comparison of what comes back with them.

A record is recognized by its key, which begins with its number. Values are hard for a codec or a
length field: empty, null, long runs, noise. Everything follows from the number alone.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

NUMBER_DIGITS = 6
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000  # young enough for any retention


class Record(NamedTuple):
    """What a producer sends and a consumer gets."""

    key: bytes
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None

    @property
    def number(self) -> int:
        """The record's number, from its key."""
        return int(self.key[:NUMBER_DIGITS])


class Received(NamedTuple):
    """A record with the partition and offset where a consumer found it."""

    partition: int
    offset: int
    record: Record


class Abilities(NamedTuple):
    """What a client can send: these limits are the client's own."""

    binary: bool = True  # any bytes; otherwise letters and digits
    null_values: bool = True
    empty_values: bool = True  # apart from null
    null_headers: bool = True
    headers: bool = True
    timestamps: bool = True


def make_record(number: int, can: Abilities) -> Record:
    """Return the record of a number."""
    source = random.Random(number)
    key = b"%0*d" % (NUMBER_DIGITS, number)
    kind = number % 8
    if not can.binary:
        value: bytes | None = (b"%x" % source.getrandbits(8 * (1 + number % 90)))[:200]
    elif kind == 0:
        value = source.randbytes(source.randrange(1, 400))
    elif kind == 1:
        value = bytes([number % 256]) * source.randrange(1, 900)
    elif kind == 2 and can.empty_values:
        value = b""
    elif kind == 3 and can.null_values:
        value = None
    else:
        value = b'{"number": %d, "text": "%s"}' % (number, b"kafka " * (number % 20))
    if can.binary:
        key += source.randbytes(number % 12)
    timestamp_ms = FIRST_TIMESTAMP_MS + number if can.timestamps else None
    return Record(key, value, make_headers(number, can), timestamp_ms)


def make_headers(number: int, can: Abilities) -> Headers:
    """Return a record's headers: none, one, or several with unusual names and values."""
    if not can.headers or number % 3 == 0:
        return ()
    headers: list[tuple[str, bytes | None]] = [("number", b"%d" % number)]
    if number % 3 == 2 and can.binary:
        headers.append(("naïve ☃", bytes(range(1 + number % 40))))
        if can.empty_values:
            headers.append(("empty", b""))
        if can.null_headers:
            headers.append(("null", None))
    return tuple(headers)


def check_received(
    sent: Iterable[Record], received: Sequence[Received], *, duplicates: bool = False
) -> None:
    """Assert that each record sent came, once unless duplicates are allowed, as it was sent.

    Within a partition the numbers must rise with the offsets: the order of one producer.
    """
    places: dict[tuple[int, int], Record] = {}
    for found in received:
        place = (found.partition, found.offset)
        known = places.setdefault(place, found.record)
        assert known == found.record, f"{place} was read as {known} and as {found.record}"
    if not duplicates:
        assert len(places) == len(received), f"{len(received) - len(places)} records came twice"
    by_key = {record.key: record for record in places.values()}
    assert len(by_key) == len(places), "the log holds a record twice"
    wanted = {record.key: record for record in sent}
    lost = sorted(wanted.keys() - by_key.keys())
    assert not lost, f"{len(lost)} of {len(wanted)} never came, first {lost[:3]}"
    foreign = sorted(by_key.keys() - wanted.keys())
    assert not foreign, f"{len(foreign)} came that were not sent here, first {foreign[:3]}"
    for key, record in wanted.items():
        got = by_key[key]
        if record.timestamp_ms is None:
            got = got._replace(timestamp_ms=None)
        assert got == record, f"sent {record}\ngot  {got}"
    check_order(places)


def check_order(places: dict[tuple[int, int], Record]) -> None:
    """Assert that numbers rise with offsets in every partition."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for (partition, _), record in sorted(places.items(), key=lambda item: item[0]):
        numbers[partition].append(record.number)
    for partition, found in numbers.items():
        assert found == sorted(found), f"partition {partition} is out of order"
