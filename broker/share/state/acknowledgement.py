"""What an acknowledgement means for the records in flight: checked whole, before anything changes.

Behaviour (Apache Kafka 4.3's): a batch of an acknowledgement has one type for all of its offsets,
or one for each.  It may span several acquired batches, or a part of one.  Offsets before the start
offset are done with, and ignored; every other must be acquired by the member that acknowledges it,
else nothing of the whole acknowledgement counts (INVALID_RECORD_STATE).

Pure; called by `SharePartition.acknowledge`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from kraftrio.broker.share.state.records import InFlight, RecordState, Run
from kraftrio.wire.errors import ErrorCode, KafkaError


class AcknowledgeCode(IntEnum):
    """By its number in Kafka's messages."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


STATE_BY_TYPE: Final = {
    AcknowledgeCode.GAP: RecordState.ARCHIVED,
    AcknowledgeCode.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeCode.RELEASE: RecordState.AVAILABLE,
    AcknowledgeCode.REJECT: RecordState.ARCHIVED,
}


class AcknowledgedBatch(NamedTuple):
    """Offsets with one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


_BUSY: Final = (
    "The record state is invalid. The acknowledgement of delivery could not be completed."
)

Segment: TypeAlias = tuple[int, int, AcknowledgeCode]
"""First and last offset, and what is to become of them."""


def segments_of(batch: AcknowledgedBatch) -> Iterator[Segment]:
    """Cut a batch where its types change."""
    first, types = batch.first_offset, batch.types
    if len(types) == 1:
        yield first, batch.last_offset, AcknowledgeCode(types[0])
        return
    start = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[start]:
            yield first + start, first + at - 1, AcknowledgeCode(types[start])
            start = at


def check_acknowledgement(
    in_flight: InFlight,
    start_offset: int,
    member_id: str,
    batches: Sequence[AcknowledgedBatch],
    *,
    may_renew: bool,
) -> list[Segment]:
    """What an acknowledgement means; the batches stand in the order of their offsets.

    Raises:
        KafkaError: INVALID_RECORD_STATE or INVALID_REQUEST, with Kafka's message.
    """
    segments: list[Segment] = []
    seen = -1
    for batch in batches:
        if batch.last_offset < start_offset:
            continue
        first = max(batch.first_offset, start_offset)
        exact = in_flight.exactly(first, batch.last_offset)
        if exact is not None:
            _check_run(exact, member_id)
        else:
            _check_is_known(in_flight, batch, start_offset)
            for run in in_flight.between(first, batch.last_offset):
                _check_run(run, member_id)
        if first <= seen:
            raise _refused(_BUSY)
        seen = batch.last_offset
        for start, end, kind in segments_of(batch):
            if end < start_offset:
                continue
            if kind is AcknowledgeCode.RENEW and not may_renew:
                raise _refused("Renewing acquisition locks is not enabled for the group.")
            segments.append((max(start, start_offset), end, kind))
    return segments


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)


def _check_is_known(in_flight: InFlight, batch: AcknowledgedBatch, start_offset: int) -> None:
    if in_flight.at_or_before(max(batch.first_offset, start_offset)) is None:
        raise _refused(
            "Batch record not found. The request batch offsets are not found in the cache."
        )
    last = in_flight.at_or_before(batch.last_offset)
    assert last is not None, "there is an earlier one"
    for offset, name in ((batch.first_offset, "first"), (batch.last_offset, "last")):
        if last.last < offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Batch record not found. The {name} offset in request is past acquired records.",
            )


def _check_run(run: Run, member_id: str) -> None:
    is_acquired = run.state is RecordState.ACQUIRED and run.change is None
    if is_acquired and run.member_id == member_id:
        return
    noun = "batch" if run.is_whole_batch else "offset"
    if is_acquired:
        what = "batch record" if run.is_whole_batch else "offset"
        raise _refused(f"Member is not the owner of {what}")
    state = "in the acquired state" if run.is_whole_batch else "acquired"
    raise _refused(f"The {noun} cannot be acknowledged. The {noun} is not {state}.")
