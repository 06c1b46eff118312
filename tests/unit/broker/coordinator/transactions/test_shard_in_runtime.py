"""The shard of transactions as the coordinator's runtime runs it, over a log in memory.

What the runtime decides counts here: when responses come, what a late commit or a lost partition
comes to, and that a marker sink which answers at once does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.broker.coordinator.transactions.ports import TransactionEnd
from kraftrio.broker.coordinator.transactions.shard import TransactionShard
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest
from kraftrio.wire.messages.transactions import EndTxnRequest
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition
from kraftrio.wire.records.compression import Compression
from kraftrio.wire.topic_names import TRANSACTION_STATE
from tests.unit.broker.coordinator.broker_stand_in import FakeReplicas, ManualTimers
from tests.unit.broker.coordinator.transactions.transaction_context import (
    ID,
    P0,
    TIMEOUT_MS,
    Properties,
)

LOG = TopicPartition(TRANSACTION_STATE, 0)


class Coordinator:
    """A coordinator of one partition; its marker sink answers at once where `is_quick`."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.replicas = FakeReplicas(self.timers)
        self.replicas.lead(0, TRANSACTION_STATE)
        self.is_quick = True
        self.ends: list[TransactionEnd] = []
        self.dropped: list[int] = []
        self._producer_id = 100
        self.start()

    def start(self) -> None:
        settings = CoordinatorSettings(
            name="transactions",
            topic=TRANSACTION_STATE,
            default_partition_count=1,
            load_buffer_size=1 << 20,
            commit_timeout_ms=5_000,
            compression=Compression.NONE,
        )
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            settings,
            self._new_shard,
            replicas=self.replicas,
            timers=self.timers,
            clock=self.timers,
            metadata=MetadataCache(),
        )

    def _new_shard(self, partition: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            partition,
            leader_epoch,
            Properties(),
            markers=self,
            take_producer_id=self._take_producer_id,
            transaction_version=lambda: 2,
        )

    def _take_producer_id(self) -> int:
        self._producer_id += 1
        return self._producer_id

    def write(self, end: TransactionEnd) -> None:
        self.ends.append(end)
        if self.is_quick:
            self.written()

    def drop(self, coordinator_partition: int) -> None:
        self.dropped.append(coordinator_partition)

    def written(self) -> Deferred[Any]:
        end = self.ends[-1]
        return self.runtime.write(
            ID,
            lambda shard, now: shard.markers_written(ID, end.producer_id, end.producer_epoch, now),
            lambda code: code,
        )

    def init(self) -> Deferred[Any]:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)
        return self.runtime.write(
            ID,
            lambda shard, now: shard.init_producer_id(request, api_version=5, now=now),
            lambda code: code,
        )

    def add(self, producer_id: int, epoch: int = 0) -> Deferred[Any]:
        producer = ProducerIdAndEpoch(producer_id, epoch)
        return self.runtime.write(
            ID,
            lambda shard, now: shard.add_partitions(ID, producer, [P0], api_version=3, now=now),
            lambda code: code,
        )

    def commit(self, producer_id: int, epoch: int = 0) -> Deferred[Any]:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        return self.runtime.write(
            ID,
            lambda shard, now: shard.end_transaction(request, api_version=5, now=now),
            lambda code: code,
        )

    def verify(self, producer_id: int, epoch: int = 0) -> Deferred[Any]:
        producer = ProducerIdAndEpoch(producer_id, epoch)
        return self.runtime.write(
            ID, lambda shard, _now: shard.verify_partitions(ID, producer, [P0]), lambda code: code
        )

    def state(self) -> str:
        return self.runtime.read(ID, lambda shard, _now: shard.describe(ID)).transaction_state

    async def load(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.runtime.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


def code_of(answer: Any) -> ErrorCode:
    """The code of whatever was asked."""
    if isinstance(answer, dict):
        return ErrorCode(answer[P0])
    return answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.runtime.elect(0, 4)
    return coordinator


def test_on_one_node_a_commit_is_complete_in_the_same_turn(coordinator: Coordinator) -> None:
    """The sink is asked, and answers, while the shard is notified of its own commit."""
    producer_id = coordinator.init().value.producer_id
    assert coordinator.add(producer_id).value is ErrorCode.NONE
    ended = coordinator.commit(producer_id).value
    assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, 1)
    assert coordinator.state() == "CompleteCommit"
    assert coordinator.ends[0].coordinator_epoch == 4


def test_what_is_not_committed_changes_nothing(coordinator: Coordinator) -> None:
    producer_id = coordinator.init().value.producer_id
    coordinator.add(producer_id)
    coordinator.replicas.auto_commit = False
    ended = coordinator.commit(producer_id)
    assert not ended.done
    assert (coordinator.state(), coordinator.ends) == ("Ongoing", [])
    assert coordinator.init().value.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.replicas.commit(LOG)
    assert ended.value.producer_epoch == 1
    assert coordinator.state() == "PrepareCommit", "the end of it is not committed yet"
    coordinator.replicas.commit(LOG)
    assert coordinator.state() == "CompleteCommit"


def test_partition_that_is_being_added_is_confirmed_once_it_is_there(
    coordinator: Coordinator,
) -> None:
    """Who adds it again meanwhile waits like the first, and its batch with it."""
    producer_id = coordinator.init().value.producer_id
    coordinator.replicas.auto_commit = False
    first, again = coordinator.add(producer_id), coordinator.add(producer_id)
    assert (first.done, again.done) == (False, False)
    coordinator.replicas.commit(LOG)
    assert (first.value, again.value) == (ErrorCode.NONE, ErrorCode.NONE)


def test_decision_that_is_committed_late_is_carried_out(coordinator: Coordinator) -> None:
    """Its client has been answered to retry; the log has the decision, so it stands."""
    producer_id = coordinator.init().value.producer_id
    coordinator.add(producer_id)
    coordinator.replicas.auto_commit = False
    ended = coordinator.commit(producer_id)
    coordinator.timers.advance(5_000)
    assert ended.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    retried = coordinator.commit(producer_id).value
    assert retried.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.replicas.auto_commit = True
    coordinator.replicas.commit(LOG)
    assert coordinator.ends == []
    coordinator.timers.advance(0)
    assert coordinator.state() == "CompleteCommit"
    assert coordinator.commit(producer_id).value.producer_epoch == 1


def test_an_idle_coordinator_aborts_what_takes_too_long(coordinator: Coordinator) -> None:
    producer_id = coordinator.init().value.producer_id
    coordinator.add(producer_id)
    coordinator.timers.advance(TIMEOUT_MS - 1)
    assert coordinator.state() == "Ongoing"
    coordinator.timers.advance(1)
    assert coordinator.state() == "CompleteAbort"


def test_completion_that_cannot_be_appended_is_tried_again(coordinator: Coordinator) -> None:
    coordinator.is_quick = False
    producer_id = coordinator.init().value.producer_id
    coordinator.add(producer_id)
    coordinator.commit(producer_id)
    coordinator.replicas.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.written()
    coordinator.timers.advance(60_000)
    assert coordinator.state() == "PrepareCommit"
    coordinator.replicas.append_error = None
    coordinator.timers.advance(1_000)
    assert coordinator.state() == "CompleteCommit"
    assert len(coordinator.ends) == 1, "the markers are written already"


def test_a_decision_that_is_in_the_log_unflushed_is_not_made_again(
    coordinator: Coordinator,
) -> None:
    """A second PrepareCommit would be one too many; the client asks again, and is answered."""
    producer_id = coordinator.init().value.producer_id
    coordinator.add(producer_id)
    coordinator.replicas.flush_fails = True
    assert coordinator.commit(producer_id).value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.timers.advance(0)
    assert coordinator.state() == "CompleteCommit"
    assert len(coordinator.ends) == 1
    end_offset = coordinator.replicas.log(LOG).log_end_offset
    coordinator.replicas.flush_fails = False
    assert coordinator.commit(producer_id).value.error_code is ErrorCode.NONE
    assert coordinator.replicas.log(LOG).log_end_offset == end_offset


@pytest.mark.parametrize("ask", [Coordinator.add, Coordinator.commit, Coordinator.verify])
def test_fatal_errors_come_only_from_a_coordinator_that_was_not_replaced(
    coordinator: Coordinator, ask: Callable[[Coordinator, int, int], Deferred[Any]]
) -> None:
    """The next one may have given out an epoch, or another id, that this one does not know."""
    producer_id = coordinator.init().value.producer_id
    coordinator.replicas.confirms = None
    for named, code in (
        ((producer_id, 1), ErrorCode.PRODUCER_FENCED),
        ((producer_id + 1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):
        refused, deposed = ask(coordinator, *named), ask(coordinator, *named)
        assert not refused.done and not deposed.done
        confirm, depose = coordinator.replicas.unconfirmed
        confirm(ErrorCode.NONE)
        assert code_of(refused.value) is code
        depose(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert code_of(deposed.value) is ErrorCode.NOT_COORDINATOR
        coordinator.replicas.unconfirmed.clear()


@pytest.mark.parametrize("ask", [Coordinator.add, Coordinator.commit, Coordinator.verify])
def test_an_older_epoch_is_outdated_for_every_coordinator(
    coordinator: Coordinator, ask: Callable[[Coordinator, int, int], Deferred[Any]]
) -> None:
    """A zombie is fenced at once."""
    producer_id = coordinator.init().value.producer_id
    assert coordinator.init().value.producer_epoch == 1
    coordinator.replicas.confirms = None
    assert code_of(ask(coordinator, producer_id, 0).value) is ErrorCode.PRODUCER_FENCED


async def test_next_leader_takes_over_what_was_committed(coordinator: Coordinator) -> None:
    """A shard that lost its partition does nothing more."""
    coordinator.is_quick = False
    producer_id = coordinator.init().value.producer_id
    coordinator.add(producer_id)
    coordinator.commit(producer_id)
    coordinator.runtime.resign(0)
    assert coordinator.dropped == [0]
    assert coordinator.written().value is ErrorCode.NOT_COORDINATOR
    coordinator.start()
    coordinator.ends.clear()
    coordinator.runtime.elect(0, 6)
    loading = coordinator.init().value
    assert loading is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await coordinator.load()
    assert [end.coordinator_epoch for end in coordinator.ends] == [6]
    coordinator.written()
    assert coordinator.state() == "CompleteCommit"


def test_markers_carry_the_epoch_that_the_partition_is_led_in(coordinator: Coordinator) -> None:
    """A shard that goes on in the next leader epoch must not be refused as an old one."""
    producer_id = coordinator.init().value.producer_id
    coordinator.add(producer_id)
    coordinator.runtime.elect(0, 5)
    coordinator.commit(producer_id)
    assert [end.coordinator_epoch for end in coordinator.ends] == [5]
