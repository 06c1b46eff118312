"""A shard of transactions in a test: a clock to advance, requests by short names, its log.

The context carries out outcomes as the runtime does: records are appended to a list, and committed
at once unless `hold_commits` is set; then `commit` or `give_up` decides. `append_error` refuses
appends. Markers are noted; `write_markers` reports them written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from kraftrio.broker.coordinator.transactions.ports import TransactionEnd
from kraftrio.broker.coordinator.transactions.records import (
    read_transaction,
    read_transaction_key,
    transaction_record,
)
from kraftrio.broker.coordinator.transactions.requests import (
    check_init_producer_id,
    version_of_adding_client,
)
from kraftrio.broker.coordinator.transactions.shard import TransactionShard
from kraftrio.broker.coordinator.transactions.state import TransactionMetadata
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse
from kraftrio.wire.messages.transactions import EndTxnRequest, EndTxnResponse
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition

START_WALL_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
ID = "app-1"
P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


@dataclass
class Properties:
    """Kafka's defaults."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_two_phase_commit_enable: bool = False


@dataclass
class TransactionContext:
    """One shard and its time; see the module.

    Attributes:
        transaction_version: of the cluster.
        producer_ids: how many are at hand.
        ends: what the shard handed to the marker sink, in order.
    """

    properties: Properties = field(default_factory=Properties)
    transaction_version: int = 2
    hold_commits: bool = False
    producer_ids: int = 1 << 62

    def __post_init__(self) -> None:
        self.now = Now(1_000.0, START_WALL_MS)
        self.log: list[CoordinatorRecord] = []
        self.ends: list[TransactionEnd] = []
        self.dropped: list[int] = []
        self.append_error = ErrorCode.NONE
        self._held: list[tuple[int, Outcome]] = []
        self._next_producer_id = 1000
        self.shard = self._new_shard(7)
        self.carry_out(self.shard.on_loaded(self.now))

    def _new_shard(self, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            3,
            leader_epoch,
            self.properties,
            markers=self,
            take_producer_id=self._take_producer_id,
            transaction_version=lambda: self.transaction_version,
        )

    def _take_producer_id(self) -> int | None:
        if self.producer_ids == 0:
            return None
        self.producer_ids -= 1
        self._next_producer_id += 1
        return self._next_producer_id

    # --- the marker sink ---

    def write(self, end: TransactionEnd) -> None:
        self.ends.append(end)

    def drop(self, coordinator_partition: int) -> None:
        self.dropped.append(coordinator_partition)

    def write_markers(self) -> TransactionEnd:
        """Report the oldest decided transaction as ended everywhere."""
        end = self.ends.pop(0)
        self.carry_out(
            self.shard.markers_written(
                end.transactional_id, end.producer_id, end.producer_epoch, self.now
            )
        )
        return end

    # --- what the runtime does ---

    def carry_out(self, outcome: Outcome) -> Any:
        """Append and apply; returns the response, or the code of a failed append."""
        if not outcome.records:
            return outcome.response
        if self.append_error is not ErrorCode.NONE:
            self._settle(outcome, self.append_error)
            return self.append_error
        self.log += outcome.records
        assert outcome.change is not None
        self.shard.apply(outcome.change, len(self.log), self.now)
        self._held.append((len(self.log), outcome))
        if not self.hold_commits:
            self.commit()
        return outcome.response

    def commit(self) -> None:
        """All that was appended is committed."""
        held, self._held = self._held, []
        for end_offset, outcome in held:
            self.shard.on_committed(end_offset)
            self._settle(outcome, ErrorCode.NONE)
        self.shard.on_committed(len(self.log))

    def give_up(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """Responses do not wait any longer for what was appended."""
        held, self._held = self._held, []
        for _, outcome in held:
            self._settle(outcome, error)

    def _settle(self, outcome: Outcome, error: ErrorCode) -> None:
        assert outcome.follow_up is not None
        self.carry_out(self.shard.on_append_done(outcome.follow_up, error, self.now))

    def advance(self, delay_ms: float) -> None:
        """Let time pass, stopping at every deadline on the way."""
        end_ms = self.now.monotonic_ms + delay_ms
        while (due := self.shard.next_deadline_ms()) is not None and due <= end_ms:
            self._set_time(max(due, self.now.monotonic_ms))
            for outcome in self.shard.on_deadline(self.now):
                self.carry_out(outcome)
        self._set_time(end_ms)

    def _set_time(self, monotonic_ms: float) -> None:
        passed_ms = int(monotonic_ms - self.now.monotonic_ms)
        self.now = Now(monotonic_ms, self.now.wall_ms + passed_ms)

    def reload(self, leader_epoch: int = 9) -> None:
        """Another broker takes over: it knows what is in the log, and no more."""
        self._held.clear()
        self.ends.clear()
        self.shard = self._new_shard(leader_epoch)
        for offset, (key, value) in enumerate(self.log):
            self.shard.replay(offset, key, value, self.now)
        self.carry_out(self.shard.on_loaded(self.now))

    def set_epoch(self, epoch: int) -> None:
        """Give the id of the last record another epoch, and load it again."""
        key, value = self.log.pop()
        transaction = read_transaction(read_transaction_key(key), value or b"")
        producer = transaction.producer._replace(epoch=epoch)
        self.log.append(transaction_record(replace(transaction, producer=producer), 2))
        self.reload()

    # --- requests ---

    def init(
        self,
        transactional_id: str = ID,
        producer: tuple[int, int] = (-1, -1),
        *,
        timeout_ms: int = TIMEOUT_MS,
        version: int = 5,
        **flags: bool,
    ) -> Any:
        """InitProducerId; gives the producer id and epoch, or whatever else is answered."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            **flags,
        )
        code = check_init_producer_id(request, self.properties)
        if code is not ErrorCode.NONE:
            return code
        response = self.carry_out(
            self.shard.init_producer_id(request, api_version=version, now=self.now)
        )
        return _producer_or_code(response)

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = ID,
        version: int = 3,
    ) -> Any:
        """AddPartitionsToTxn; gives the code."""
        return self.carry_out(
            self.shard.add_partitions(
                transactional_id,
                ProducerIdAndEpoch(*producer),
                partitions or (P0,),
                api_version=version,
                client_version=version_of_adding_client(version),
                now=self.now,
            )
        )

    def verify(self, producer: tuple[int, int], *partitions: TopicPartition) -> list[ErrorCode]:
        """AddPartitionsToTxn with `verify_only`."""
        producer_id = ProducerIdAndEpoch(*producer)
        answer = self.shard.verify_partitions(ID, producer_id, partitions).response
        return [answer[partition] for partition in partitions]

    def end(
        self,
        producer: tuple[int, int],
        *,
        commit: bool = True,
        transactional_id: str = ID,
        version: int = 5,
    ) -> Any:
        """EndTxn; gives the producer id and epoch of the answer, or the code."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        response = self.carry_out(
            self.shard.end_transaction(request, api_version=version, now=self.now)
        )
        return _producer_or_code(response)

    # --- what came of it ---

    def state(self, transactional_id: str = ID) -> str:
        """The name of the state that DescribeTransactions returns; "absent" for unknown ids."""
        described = self.shard.describe(transactional_id)
        if described.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return "absent"
        return described.transaction_state

    def producer(self, transactional_id: str = ID) -> tuple[int, int]:
        described = self.shard.describe(transactional_id)
        return described.producer_id, described.producer_epoch

    def stored(self) -> Iterable[TransactionMetadata | str]:
        """The log as values; an id alone is a tombstone."""
        for key, value in self.log:
            transactional_id = read_transaction_key(key)
            yield transactional_id if value is None else read_transaction(transactional_id, value)


def _producer_or_code(response: Any) -> Any:
    if isinstance(response, InitProducerIdResponse | EndTxnResponse):
        if response.error_code is not ErrorCode.NONE:
            return response.error_code
        return response.producer_id, response.producer_epoch
    return response
