"""Where a group is to go on: each way to say so, as an offset of each partition.

Pure: what offsets there are comes in. Called by: `kraftrio group reset`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kraftrio.wire.primitives import TopicPartition


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a partition.

    Attributes:
        current: what the group has committed; None: nothing.
        at: the first offset that is not older than the moment asked for; None: there is none.
    """

    earliest: int
    latest: int
    current: int | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of a partition."""

    item: TopicPartition
    known: Known
    offset: int

    @property
    def lag(self) -> int:
        """How many offsets are ahead then."""
        return self.known.latest - self.offset


Form = Callable[[TopicPartition, Known], int | None]
"""Returns the offset of a partition; None leaves it as it is."""


def to_earliest(item: TopicPartition, known: Known) -> int:
    """All there is."""
    return known.earliest


def to_latest(item: TopicPartition, known: Known) -> int:
    """What comes from now on."""
    return known.latest


def to_current(item: TopicPartition, known: Known) -> int:
    """What is committed, or else what comes from now on."""
    return known.latest if known.current is None else known.current


def to_moment(item: TopicPartition, known: Known) -> int:
    """The first record that is not older than the moment asked for."""
    return known.latest if known.at is None else known.at


def to_offset(offset: int) -> Form:
    """The same offset in each partition."""
    return lambda item, known: offset


def shift_by(distance: int) -> Form:
    """So many records further on, or back; what was never committed stays so."""
    return lambda item, known: None if known.current is None else known.current + distance


def from_table(offsets: Mapping[TopicPartition, int]) -> Form:
    """An offset for each partition; the others stay as they are."""
    return lambda item, known: offsets.get(item)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a reset does, partition by partition."""

    moves: list[Move] = field(default_factory=list)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets to be committed."""
        return {move.item: move.offset for move in self.moves}


def plan_reset(form: Form, known: Mapping[TopicPartition, Known]) -> Plan:
    """Return what becomes of each partition; an offset that is not there becomes the nearest."""
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
        ValueError: a line is something else; says which.
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
