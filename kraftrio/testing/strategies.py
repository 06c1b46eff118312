"""Hypothesis strategies for what a program is given: keys, headers, timestamps, batches, faults.

They prefer what breaks programs: keys that come again, no key and the empty one, tombstones,
headers that come twice, times out of order, bytes that are no text. `faults` gives lists that a
program must survive, as the mark `kafka_faults` draws them, and shrinks to few and early ones.

Called by: tests, as `from kraftrio.testing import strategies`; needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kraftrio.testing.faults.plan import (
    HORIZON_S,
    KINDS,
    MOST_FAULTS,
    OF_SEVERAL,
    Fault,
    lengths_s,
    one_at_a_time,
    targets,
)
from kraftrio.testing.simulation.world import START_WALL_MS

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "kraftrio.testing.strategies needs hypothesis: pip install hypothesis"
    ) from error

_KEYS = (b"a", b"b", b"c", b"", None, b"\x00", b"\xff\xfe", "ключ".encode())


class NewRecord(NamedTuple):
    """A record to be sent: `await producer.send(topic, **record._asdict())`."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def keys() -> st.SearchStrategy[bytes | None]:
    """Keys: mostly of a few, so that they come again; None is no key."""
    return st.sampled_from(_KEYS) | st.binary(max_size=40)


def values(*, max_bytes: int = 200) -> st.SearchStrategy[bytes | None]:
    """Values: text, other bytes, or None, which deletes a key from a compacted topic."""
    text = st.text(max_size=max_bytes // 4).map(str.encode)
    return text | st.binary(max_size=max_bytes) | st.none()


def headers(*, max_count: int = 4) -> st.SearchStrategy[list[tuple[str, bytes | None]]]:
    """Headers: in an order that counts, with names that may come twice, and values that may be
    None.
    """
    names = st.sampled_from(("trace-id", "a", "")) | st.text(max_size=20)
    return st.lists(st.tuples(names, st.binary(max_size=40) | st.none()), max_size=max_count)


def timestamps(
    *, earliest_ms: int = START_WALL_MS - 86_400_000, latest_ms: int = START_WALL_MS
) -> st.SearchStrategy[int]:
    """Times of records, in milliseconds since 1970, in no order.

    Args:
        earliest_ms: as it is set, a day before a world begins: what is older than the retention of
            a topic is deleted soon.
        latest_ms: as it is set, when a world begins: brokers refuse what is far ahead of their
            clocks.
    """
    return st.sampled_from((earliest_ms, latest_ms)) | st.integers(earliest_ms, latest_ms)


def batches(*, min_size: int = 0, max_size: int = 20) -> st.SearchStrategy[list[NewRecord]]:
    """Records that are sent together."""
    record = st.builds(
        NewRecord,
        value=values(),
        key=keys(),
        headers=headers(),
        timestamp_ms=timestamps(),
    )
    return st.lists(record, min_size=min_size, max_size=max_size)


def faults(
    *, brokers: int = 3, kinds: Collection[str] | None = None, max_size: int = MOST_FAULTS
) -> st.SearchStrategy[list[Fault]]:
    """Lists of faults that a program must survive, for `KafkaWorld(faults=...)`.

    Args:
        brokers: how many nodes the world has.
        kinds: of which kinds; None: of all.

    Raises:
        ValueError: there is no such kind; the text says what to write instead.
    """
    possible = [kind for kind in KINDS if brokers > 1 or kind not in OF_SEVERAL]
    for kind in kinds or ():
        if kind not in possible:
            raise ValueError(f"{brokers} brokers have no fault {kind!r}: {', '.join(possible)}")
    one = st.one_of([_fault(kind, brokers) for kind in possible if kinds is None or kind in kinds])
    return st.lists(one, max_size=max_size).map(one_at_a_time)


def _fault(kind: str, brokers: int) -> st.SearchStrategy[Fault]:
    """Faults of one kind."""
    return st.builds(
        Fault,
        at_s=_seconds(0.0, HORIZON_S),
        kind=st.just(kind),
        target=st.sampled_from(targets(kind, brokers)),
        length_s=_seconds(*lengths_s(kind)),
    )


def _seconds(shortest_s: float, longest_s: float) -> st.SearchStrategy[float]:
    """Hundredths of a second, as plans have them."""
    hundredths = st.integers(round(shortest_s * 100), round(longest_s * 100))
    return hundredths.map(lambda count: count / 100)
