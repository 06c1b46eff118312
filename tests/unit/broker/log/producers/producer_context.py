"""A partition's producers in the words of their tests."""

from __future__ import annotations

import pytest

from kraftrio.broker.log.producers.producer_state import (
    AppendOrigin,
    CompletedTransaction,
    Duplicate,
    ProducerStateManager,
)
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records.batch import BatchHeader
from kraftrio.wire.records.control import EndTransactionMarker

DAY_MS = 86_400_000
T0 = 1_700_000_000_000


def header_of(
    producer_id: int,
    epoch: int,
    sequence: int,
    count: int,
    *,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = T0,
) -> BatchHeader:
    attributes = (0x10 if transactional else 0) | (0x20 if control else 0)
    return BatchHeader(
        base_offset=0,
        size_bytes=61,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
        position=0,
    )


class Partition:
    """A partition's log end and producer state, with the words of these tests."""

    def __init__(self, expiration_ms: int = DAY_MS) -> None:
        self.state = ProducerStateManager(producer_id_expiration_ms=expiration_ms)
        self.end_offset = 0
        self.now_ms = T0

    def send(
        self,
        sequence: int,
        count: int = 1,
        *,
        pid: int = 1,
        epoch: int = 0,
        txn: bool = False,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        timestamp: int = T0,
        guard: VerificationGuard | None = None,
    ) -> int | Duplicate:
        """Append a batch as a leader does: check, append, update; return its base offset."""
        header = header_of(pid, epoch, sequence, count, transactional=txn, timestamp=timestamp)
        duplicate = self.state.check(header, self.now_ms, origin, guard=guard)
        if duplicate is not None:
            return duplicate
        base_offset = self.end_offset
        self.end_offset += count
        self.state.update(header, base_offset, self.now_ms)
        assert self.state.map_end_offset == self.end_offset
        return base_offset

    def refused(self, sequence: int, count: int = 1, **options: object) -> ErrorCode:
        """Return the code a batch is refused with; nothing may change then."""
        before = (self.state.snapshot_bytes(), self.state.first_unstable_offset)
        with pytest.raises(KafkaError) as caught:
            self.send(sequence, count, **options)  # type: ignore[arg-type]
        assert (self.state.snapshot_bytes(), self.state.first_unstable_offset) == before
        return caught.value.code

    def end(
        self,
        *,
        commit: bool = True,
        pid: int = 1,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        version: int = 0,
    ) -> CompletedTransaction | None:
        """Append an end-transaction marker as the coordinator's request does."""
        header = header_of(pid, epoch, -1, 1, transactional=True, control=True)
        marker = EndTransactionMarker(commit, coordinator_epoch)
        self.state.check(
            header,
            self.now_ms,
            AppendOrigin.COORDINATOR,
            marker=marker,
            transaction_version=version,
        )
        base_offset = self.end_offset
        self.end_offset += 1
        return self.state.update(header, base_offset, self.now_ms, marker=marker)

    def end_refused(self, **options: int) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.end(**options)  # type: ignore[arg-type]
        return caught.value.code
