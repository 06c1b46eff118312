"""The ways to reset a group: each gives an offset for each partition.

Pure: the partitions' offsets come in. Called by: `kraftrio group reset`, and the console.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kraftrio.wire.primitives import TopicPartition


@dataclass(frozen=True, slots=True)
class KnownOffsets:
    """The offsets of a partition that a reset may use.

    Attributes:
        current: the one that the group has committed; None: nothing.
        at: that of the first record at or after the given moment; None: there is none.
    """

    earliest: int
    latest: int
    current: int | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The new offset of one partition."""

    item: TopicPartition
    known: KnownOffsets
    offset: int

    @property
    def lag(self) -> int:
        """The lag after the reset."""
        return self.known.latest - self.offset


Form = Callable[[TopicPartition, KnownOffsets], int | None]
"""Returns the offset of a partition; None leaves it as it is."""


def to_earliest(item: TopicPartition, known: KnownOffsets) -> int:
    """The first record."""
    return known.earliest


def to_latest(item: TopicPartition, known: KnownOffsets) -> int:
    """The end: only new records."""
    return known.latest


def to_current(item: TopicPartition, known: KnownOffsets) -> int:
    """The committed offset; the end if nothing is committed."""
    return known.latest if known.current is None else known.current


def to_moment(item: TopicPartition, known: KnownOffsets) -> int:
    """The first record at or after the given moment; the end if there is none."""
    return known.latest if known.at is None else known.at


def to_offset(offset: int) -> Form:
    """The same offset in each partition."""
    return lambda item, known: offset


def shift_by(distance: int) -> Form:
    """So many records forward, or back; a partition without a committed offset stays so."""
    return lambda item, known: None if known.current is None else known.current + distance


def from_table(offsets: Mapping[TopicPartition, int]) -> Form:
    """An offset for each partition; the others stay as they are."""
    return lambda item, known: offsets.get(item)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a reset does with each partition."""

    moves: list[Move] = field(default_factory=list)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets to be committed."""
        return {move.item: move.offset for move in self.moves}


def plan_reset(form: Form, known: Mapping[TopicPartition, KnownOffsets]) -> Plan:
    """Return the new offset of each partition: the nearest one that there is to the wanted one."""
    moves = []
    for item, what in sorted(known.items()):
        wanted = form(item, what)
        if wanted is not None:
            offset = min(max(wanted, what.earliest), what.latest)
            moves.append(Move(item, what, offset))
    return Plan(moves)


def read_table(lines: Iterable[str]) -> dict[TopicPartition, int]:
    """Read lines of topic,partition,offset, as Kafka's tools export and import them.

    Raises:
        ValueError: a line is something else; it says which.
    """
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        try:
            topic, partition, offset = (text.strip() for text in row)
            found[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise ValueError(
                f"line {number} is not topic,partition,offset: {','.join(row)!r}"
            ) from None
    return found
