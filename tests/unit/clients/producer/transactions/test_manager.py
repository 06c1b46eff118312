"""A producer's transactions, as programs have them, against scripted brokers and a coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio import OffsetAndMetadata, Producer, TopicPartition
from kraftrio.clients.group_offsets import GroupMetadata
from kraftrio.clients.producer.transactions.error_meanings import Meaning, meaning_of, worst_of
from kraftrio.errors import (
    CommitFailedError,
    ConfigError,
    FatalProducerError,
    KafkaClientError,
    ProducerFencedError,
    TimedOutError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
    TransactionInDoubtError,
    TransactionStateError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.records.batch import Record, build_batch
from tests.unit.clients.fake_cluster import CUT, CUT_AFTER, FakeCluster, fake_cluster
from tests.unit.clients.fake_transactions import PRODUCER_ID, FakeTransactions

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
    "linger_ms": 0,
}
IN = TopicPartition("in", 0)


@asynccontextmanager
async def producing(
    version: int = 2, **settings: Any
) -> AsyncIterator[tuple[FakeCluster, FakeTransactions, Producer]]:
    """A cluster of one, its coordinator, and a transactional producer."""
    async with fake_cluster() as cluster:
        cluster.add_topic("a", [1, 1])
        coordinator = FakeTransactions(cluster, version)
        options = QUICK | settings
        async with Producer(cluster.bootstrap, transactional_id="t", **options) as producer:
            yield cluster, coordinator, producer


both_versions = pytest.mark.parametrize("version", [1, 2])


@both_versions
async def test_a_commit_writes_what_lingers_and_then_ends(version: int) -> None:
    async with producing(version, linger_ms=60_000) as (cluster, coordinator, producer):
        for number in range(2):
            async with producer.transaction():
                deliveries = [await producer.send("a", b"%d" % number, partition=0)]
                deliveries.append(await producer.send("a", b"", partition=1))
            assert [delivery.result().offset for delivery in deliveries] == [number, number]
        assert cluster.values("a") == [b"0", b"1"]
        requests = ["add a-0 a-1", "commit"] if version == 1 else ["commit"]
        assert coordinator.asked == ["init", *requests, *requests]
        assert cluster.versions_used["EndTxn"] == (4 if version == 1 else 5)
        assert cluster.versions_used["Produce"] == (11 if version == 1 else 13)
        (memory,) = cluster.logs["a", 0].producers.values()
        if version == 1:
            assert (memory.epoch, memory.batches[-1][:2]) == (0, (1, 1))
        else:
            assert (memory.epoch, memory.batches[-1][:2]) == (1, (0, 0))


@both_versions
async def test_an_exception_and_a_cancellation_abort(version: int) -> None:
    async with producing(version, linger_ms=60_000) as (cluster, coordinator, producer):
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("a", b"", partition=0)
                await producer.flush()
                waiting = await producer.send("a", b"never sent", partition=0)
                raise ZeroDivisionError
        with pytest.raises(TransactionAbortedError):
            waiting.result()
        with trio.CancelScope() as scope:
            async with producer.transaction():
                await producer.send("a", b"", partition=0)
                await producer.flush()
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert [asked for asked in coordinator.asked if asked[:3] != "add"] == [
            "init",
            "abort",
            "abort",
        ]
        async with producer.transaction():
            await producer.send("a", b"goes on", partition=0)
        assert cluster.values("a") == [b"", b"", b"goes on"]


async def test_cancelling_the_whole_producer_still_aborts() -> None:
    async with fake_cluster() as cluster:
        cluster.add_topic("a", [1])
        coordinator = FakeTransactions(cluster)
        with trio.CancelScope() as scope:
            producer = Producer(cluster.bootstrap, transactional_id="t", **QUICK)
            async with producer, producer.transaction():
                await (await producer.send("a", b""))
                scope.cancel()
                await trio.sleep_forever()
        assert coordinator.asked == ["init", "abort"]


@both_versions
async def test_what_sends_nothing_asks_nobody(version: int) -> None:
    async with producing(version, linger_ms=60_000) as (_, coordinator, producer):
        async with producer.transaction():
            pass
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("a", b"is not sent")
                raise ZeroDivisionError
        async with producer.transaction() as transaction:
            await transaction.send_offsets({}, "g")
        # Before version 2 the coordinator may be sent the partition before the abort comes.
        assert {*coordinator.asked} <= {"init", "add a-0", "add a-1", "abort"}
        assert "commit" not in coordinator.asked


@both_versions
async def test_offsets_are_committed_with_the_transaction(version: int) -> None:
    async with producing(version) as (cluster, coordinator, producer):
        group = GroupMetadata("g", 3, "m", "i")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                await transaction.send_offsets({IN: 5}, group)
                raise ZeroDivisionError
        assert not coordinator.offsets
        async with producer.transaction() as transaction:
            await transaction.send_offsets({IN: OffsetAndMetadata(6, 2, "x")}, group)
            await transaction.send_offsets({IN: 7}, "other")
            assert not coordinator.offsets
        assert coordinator.offsets == {("g", IN): 6, ("other", IN): 7}
        assert coordinator.members == [(3, "m", "i"), (3, "m", "i"), (-1, "", None)]
        assert ("offsets g" in coordinator.asked) == (version == 1)
        assert cluster.versions_used["TxnOffsetCommit"] == (4 if version == 1 else 5)


async def test_offsets_that_may_not_have_arrived_are_not_committed() -> None:
    """Who stops waiting for them cannot know: the transaction is aborted."""
    async with producing() as (_, coordinator, producer):
        scope = trio.CancelScope()
        coordinator.refusals[ApiKey.TXN_OFFSET_COMMIT] = [scope.cancel]
        with pytest.raises(TransactionAbortedError, match="cancelled"):
            async with producer.transaction() as transaction:
                with scope:
                    await transaction.send_offsets({IN: 1}, "g")
                assert scope.cancelled_caught
        assert coordinator.asked[-1] == "abort"


@both_versions
async def test_the_coordinator_moves(version: int) -> None:
    async with fake_cluster(2) as cluster:
        cluster.add_topic("a", [1, 1])
        coordinator = FakeTransactions(cluster, version)
        async with Producer(cluster.bootstrap, transactional_id="t", **QUICK) as producer:
            async with producer.transaction() as transaction:
                cluster.coordinator_id = 2
                await producer.send("a", b"kept", partition=0)
                await transaction.send_offsets({IN: 1}, "g")
                await producer.flush()
                cluster.coordinator_id = 1
            assert cluster.values("a") == [b"kept"]
            assert coordinator.offsets == {("g", IN): 1}


class Source:
    """What send_offsets takes of a consumer."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(enable_auto_commit=False)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {IN: OffsetAndMetadata(8)}

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("g", 1, "m")


async def test_a_consumer_gives_positions_and_member() -> None:
    async with producing() as (_, coordinator, producer), producer.transaction() as transaction:
        source = Source()
        await transaction.send_offsets(source)
        assert coordinator.members == [(1, "m", None)]
        with pytest.raises(TypeError, match="need the group"):
            await transaction.send_offsets({IN: 1})
        with pytest.raises(TypeError, match="knows its group"):
            await transaction.send_offsets(source, "g")
        with pytest.raises(ValueError, match="negative"):
            await transaction.send_offsets({IN: -1}, "g")
        source.config.enable_auto_commit = True
        with pytest.raises(ConfigError, match="enable_auto_commit"):
            await transaction.send_offsets(source)


@pytest.mark.parametrize(
    ("api", "refusals"),
    [
        (ApiKey.END_TXN, [ErrorCode.CONCURRENT_TRANSACTIONS] * 3),
        (ApiKey.END_TXN, [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]),
        (ApiKey.END_TXN, [CUT]),
        (ApiKey.ADD_PARTITIONS_TO_TXN, [ErrorCode.CONCURRENT_TRANSACTIONS, CUT]),
        (ApiKey.ADD_PARTITIONS_TO_TXN, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        (ApiKey.ADD_OFFSETS_TO_TXN, [ErrorCode.CONCURRENT_TRANSACTIONS, CUT]),
        (ApiKey.TXN_OFFSET_COMMIT, [ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT, CUT]),
    ],
)
async def test_what_passes_by_itself_is_repeated(api: ApiKey, refusals: list[Any]) -> None:
    async with producing(1) as (cluster, coordinator, producer):
        coordinator.refusals[api] = list(refusals)
        async with producer.transaction() as transaction:
            await producer.send("a", b"once", partition=0)
            await transaction.send_offsets({IN: 1}, "g")
        assert cluster.values("a") == [b"once"]
        assert coordinator.offsets == {("g", IN): 1}
        assert not coordinator.refusals[api]


ABORTED = [
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID),
    (ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE),
]


@pytest.mark.parametrize(("api", "code"), ABORTED)
async def test_what_fails_the_transaction_leaves_the_producer(api: ApiKey, code: ErrorCode) -> None:
    async with producing(1) as (cluster, coordinator, producer):
        coordinator.refusals[api] = [code]
        with pytest.raises(TransactionAbortedError) as raised:
            async with producer.transaction() as transaction:
                delivery = await producer.send("a", b"")
                await transaction.send_offsets({IN: 1}, "g")
        assert raised.value.code == code
        if code == ErrorCode.ILLEGAL_GENERATION:
            assert isinstance(raised.value.__cause__, CommitFailedError)
        assert delivery.done
        assert not coordinator.offsets
        async with producer.transaction() as transaction:
            await producer.send("a", b"second", partition=1)
            await transaction.send_offsets({IN: 2}, "g")
        assert cluster.values("a", 1)[-1] == b"second"
        assert coordinator.offsets == {("g", IN): 2}


async def test_a_transactional_id_that_has_expired_is_initialized_again() -> None:
    async with producing(1) as (_, coordinator, producer):
        for api in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN):
            coordinator.refusals[api] = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        for committed in (False, True):
            try:
                async with producer.transaction() as transaction:
                    await transaction.send_offsets({IN: 1}, "g")
                    await producer.send("a", b"", partition=0)
            except TransactionAbortedError as error:
                assert error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
                assert not committed
        assert coordinator.asked[-6:-3] == ["abort", "init", "offsets g"]
        assert coordinator.offsets


FATAL = [
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
    (ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE, FatalProducerError),
    (
        ApiKey.END_TXN,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        TransactionalIdAuthorizationError,
    ),
]


@pytest.mark.parametrize(("api", "code", "expected"), FATAL)
async def test_what_is_fatal_ends_the_producer(
    api: ApiKey, code: ErrorCode, expected: type[FatalProducerError]
) -> None:
    async with producing(1) as (_, coordinator, producer):
        coordinator.refusals[api] = [code]
        with pytest.raises(expected):
            async with producer.transaction() as transaction:
                await producer.send("a", b"")
                await transaction.send_offsets({IN: 1}, "g")
        asked = list(coordinator.asked)
        for again in (producer.transaction().__aenter__, lambda: producer.send("a", b"")):
            with pytest.raises(expected):
                await again()
        assert coordinator.asked == asked, "nobody is asked any more"


async def test_what_is_answered_fatally_while_it_aborts_ends_the_producer() -> None:
    async with producing(1) as (_, coordinator, producer):
        with trio.CancelScope() as scope:
            refusals = [scope.cancel, ErrorCode.PRODUCER_FENCED]
            coordinator.refusals[ApiKey.ADD_PARTITIONS_TO_TXN] = refusals
            async with producer.transaction():
                await producer.send("a", b"")
                await trio.sleep_forever()
        with pytest.raises(ProducerFencedError):
            await producer.transaction().__aenter__()
        assert "abort" not in coordinator.asked


async def test_a_zombie_learns_that_it_is_fenced() -> None:
    async with producing() as (cluster, coordinator, producer):
        with pytest.raises(ProducerFencedError) as raised:
            async with producer.transaction():
                coordinator.epoch += 1  # another producer came
                cluster.logs["a", 0].append(_batch_of(coordinator.epoch))
                await (await producer.send("a", b"late", partition=0))
        assert isinstance(raised.value.__cause__, TransactionAbortedError)
        assert raised.value.__cause__.code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert cluster.values("a") == [b"of the successor"]


def _batch_of(epoch: int) -> bytearray:
    record = Record(0, 0, None, b"of the successor", ())
    return build_batch([record], producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=0)


@both_versions
async def test_a_batch_that_is_refused_aborts_and_the_next_epoch_begins_at_0(version: int) -> None:
    async with producing(version) as (cluster, coordinator, producer):
        cluster.logs["a", 0].max_batch_bytes = 500
        with pytest.raises(TransactionAbortedError) as raised:
            async with producer.transaction():
                await producer.send("a", b"fits", partition=0)
                await producer.flush()
                await producer.send("a", b"x" * 1000, partition=0)
        assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
        cluster.logs["a", 0].max_batch_bytes = 1 << 20
        async with producer.transaction():
            await producer.send("a", b"next", partition=0)
        assert cluster.values("a") == [b"fits", b"next"]
        (memory,) = cluster.logs["a", 0].producers.values()
        assert (memory.epoch, memory.batches[-1][:2]) == (1, (0, 0))
        ended = [asked for asked in coordinator.asked if asked[:3] != "add"]
        assert ended == ["init", "abort", *(["init"] if version == 1 else []), "commit"]


async def test_a_commit_without_an_answer_leaves_its_outcome_open(
    mock_clock: trio.testing.MockClock,
) -> None:
    """It is done, and asked for again until the time is up, which nothing else takes any of."""
    mock_clock.rate = 1.0
    async with producing(max_block_ms=8_000) as (_, coordinator, producer):
        late = [CUT_AFTER, lambda: mock_clock.jump(9.0)]
        coordinator.refusals[ApiKey.END_TXN] = late * 1000
        with pytest.raises(TransactionInDoubtError):
            async with producer.transaction():
                await producer.send("a", b"")
        with pytest.raises(TransactionInDoubtError):
            await producer.transaction().__aenter__()


@pytest.mark.parametrize("first", [CUT_AFTER, CUT, ErrorCode.NOT_COORDINATOR])
@pytest.mark.parametrize(
    "then",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ],
)
async def test_a_refused_commit_is_in_doubt_if_an_attempt_before_may_have_done_it(
    first: Any, then: ErrorCode
) -> None:
    """The coordinator decided, and moved; then a newer producer came, for one."""
    async with producing() as (_, coordinator, producer):
        coordinator.refusals[ApiKey.END_TXN] = [first, then]
        with pytest.raises(TransactionInDoubtError) as raised:
            async with producer.transaction():
                await producer.send("a", b"")
        cause = raised.value.__cause__
        assert isinstance(cause, KafkaClientError)
        assert cause.code == then


@pytest.mark.parametrize(
    "first", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS]
)
async def test_a_commit_is_not_done_by_an_attempt_that_was_put_off(first: ErrorCode) -> None:
    async with producing() as (_, coordinator, producer):
        coordinator.refusals[ApiKey.END_TXN] = [first, ErrorCode.PRODUCER_FENCED]
        with pytest.raises(ProducerFencedError):
            async with producer.transaction():
                await producer.send("a", b"")


async def test_an_abort_without_an_answer_is_tried_again_before_the_next(
    mock_clock: trio.testing.MockClock,
) -> None:
    """Each attempt takes all of its time here, and nothing else any."""
    mock_clock.rate = 1.0
    async with producing(max_block_ms=8_000) as (_, coordinator, producer):
        coordinator.refusals[ApiKey.END_TXN] = [lambda: mock_clock.jump(9.0)] * 1000
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await (await producer.send("a", b"", partition=0))
                raise ZeroDivisionError
        with pytest.raises((TransactionStateError, TimedOutError)):
            await producer.transaction().__aenter__()
        coordinator.refusals[ApiKey.END_TXN].clear()
        async with producer.transaction():
            await producer.send("a", b"", partition=0)
        assert coordinator.asked == ["init", "abort", "commit"]


async def test_records_and_transactions_keep_to_their_order() -> None:
    async with producing() as (cluster, coordinator, producer):
        with pytest.raises(TransactionStateError, match="in `async with"):
            await producer.send("a", b"")
        async with producer.transaction() as transaction:
            await producer.send("a", b"")
            with pytest.raises(TransactionStateError, match="has not ended"):
                await producer.transaction().__aenter__()
            await transaction.abort()
            with pytest.raises(TransactionStateError, match="not open"):
                await transaction.abort()
            with pytest.raises(TransactionStateError, match="not open"):
                await transaction.send_offsets({IN: 1}, "g")
            with pytest.raises(TransactionStateError):
                await producer.send("a", b"")
        assert "commit" not in coordinator.asked
        assert len(cluster.values("a") + cluster.values("a", 1)) <= 1


async def test_closing_aborts_what_is_open() -> None:
    async with producing() as (_, coordinator, producer):
        transaction = await producer.transaction().__aenter__()
        await (await producer.send("a", b""))
    assert coordinator.asked == ["init", "abort"]
    assert transaction


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"enable_idempotence": False}, "enable_idempotence"),
        ({"acks": 1}, "acks"),
        ({"retries": 0}, "retries"),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"transactional_id": ""}, "not be empty"),
        ({"transaction_timeout_ms": 0}, "at least 1"),
    ],
)
def test_settings_that_do_not_go_with_transactions(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Producer("localhost:9092", **({"transactional_id": "t"} | settings))


async def test_a_producer_without_an_id_has_no_transactions() -> None:
    async with fake_cluster() as cluster, Producer(cluster.bootstrap) as producer:
        with pytest.raises(TransactionStateError, match="transactional_id"):
            producer.transaction()


async def test_an_id_that_cannot_be_initialized_is_an_error_of_entering() -> None:
    async with fake_cluster() as cluster:
        coordinator = FakeTransactions(cluster)
        code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        coordinator.refusals[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.CONCURRENT_TRANSACTIONS, code]
        with pytest.raises(FatalProducerError) as raised:
            async with Producer(cluster.bootstrap, transactional_id="t", **QUICK):
                raise AssertionError("it has no id")
        assert raised.value.code == code


@pytest.mark.parametrize(
    ("codes", "worst", "meaning"),
    [
        ([ErrorCode.NONE], ErrorCode.NONE, Meaning.DONE),
        (
            [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            Meaning.ABORT,
        ),
        (
            [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED],
            ErrorCode.PRODUCER_FENCED,
            Meaning.FENCED,
        ),
        ([ErrorCode.UNKNOWN_SERVER_ERROR], ErrorCode.UNKNOWN_SERVER_ERROR, Meaning.FATAL),
    ],
)
def test_the_worst_of_several_codes_decides(
    codes: list[ErrorCode], worst: ErrorCode, meaning: Meaning
) -> None:
    assert worst_of(ApiKey.ADD_PARTITIONS_TO_TXN, codes) == worst
    assert meaning_of(ApiKey.ADD_PARTITIONS_TO_TXN, worst) is meaning
