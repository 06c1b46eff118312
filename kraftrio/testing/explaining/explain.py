"""Explains a record: whether it is visible, how often it was read, why it is in its partition.

Owns: `Explanation`, and `explain`, which puts the answers together.

Called by: `kafka_world` and `cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from kraftrio.testing.contents import as_bytes
from kraftrio.testing.explaining import placement, rereads, visibility
from kraftrio.testing.explaining.evidence import Answer, Evidence, Place, Reason
from kraftrio.wire.records.batch import Record


class Placed(Protocol):
    """What has topic, partition and offset, as `ConsumerRecord` and `RecordMetadata` have."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of a record, and why; `str` gives it as text.

    Attributes:
        subject: which record it is about.
        visibility: whether consumers can see it.
        reading: how often clients got it, and why more than once.
        placement: why it is in its partition.
    """

    subject: str
    visibility: Answer
    reading: Answer
    placement: Answer

    def __str__(self) -> str:
        return f"{self.subject}\n  {self.visibility}\n  {self.reading}\n  placed {self.placement}"


def explain(
    evidence: Evidence,
    record: Placed | str,
    partition: int | None = None,
    offset: int | None = None,
    key: bytes | str | None = None,
    value: bytes | str | None = None,
) -> Explanation:
    """Explain a record, an offset, or a record that a program sent; see `KafkaWorld.explain`."""
    if not isinstance(record, str) and hasattr(record, "offset"):
        return _of_record(evidence, record)
    if isinstance(record, str) and partition is not None and offset is not None:
        return _of_place(evidence, Place(record, partition, offset), None)
    is_place = partition is not None or offset is not None
    if not isinstance(record, str) or is_place or (key is None and value is None):
        raise ValueError(
            "explain() takes a record, or a topic with partition and offset, or a topic with the"
            " value (and key) of what was sent"
        )
    key, value = (as_bytes(each) for each in (key, value))
    answer, send, place = visibility.of_record(evidence, record, key, value)
    wanted = [f"{name} {each!r}" for name, each in (("key", key), ("value", value)) if each]
    subject = f"{record} record with {', '.join(wanted)}"
    placed = placement.of_send(evidence, send)
    if place is None:
        reading = Answer(Reason.NOT_READ, "it is at no offset")
        return Explanation(subject, answer, reading, placed)
    return Explanation(f"{place}: {subject}", answer, rereads.of_place(evidence, place), placed)


def _of_record(evidence: Evidence, record: Placed) -> Explanation:
    place = Place(record.topic, record.partition, record.offset)
    wanted = None
    if hasattr(record, "value"):
        found: Any = record
        if all(isinstance(each, bytes | None) for each in (found.key, found.value)):
            wanted = Record(place.offset, found.timestamp, found.key, found.value)
    return _of_place(evidence, place, wanted)


def _of_place(evidence: Evidence, place: Place, wanted: Record | None) -> Explanation:
    return Explanation(
        str(place),
        visibility.of_place(evidence, place, wanted),
        rereads.of_place(evidence, place),
        placement.of_send(evidence, placement.send_of(evidence, place)),
    )
