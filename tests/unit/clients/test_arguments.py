"""What cannot be sent is refused where it is handed over, and takes nothing else with it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio

from kraftrio.clients import arguments
from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.groups import CommittedOffset
from kraftrio.clients.admin.types import (
    AbortTransactionSpec,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewTopic,
)
from kraftrio.clients.config import ProducerConfig, make_config
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.errors import ConfigError, InvalidValueError, KafkaClientError
from kraftrio.clients.group_offsets import OffsetAndMetadata
from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.fake_cluster import fake_cluster

NOBODY = "127.0.0.1:1"
T0 = TopicPartition("t", 0)
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
NO_TEXT = "\ud800"
Call = Callable[[Any], Awaitable[object]]


class Number:
    """An integer that is none of Python's, as numpy's are."""

    def __index__(self) -> int:
        return 7


def test_whole_numbers() -> None:
    """Floats and truth are no numbers; the limits are those of the protocol's integers."""
    assert arguments.whole_number("n", Number()) == 7
    assert type(arguments.whole_number("n", Number())) is int
    assert arguments.whole_number("n", 2**63 - 1) == 2**63 - 1
    for given in (1.0, 1e12, "1", b"1", None, True):
        with pytest.raises(TypeError, match=re.escape(f"n must be a whole number, not {given!r}")):
            arguments.whole_number("n", given)
    with pytest.raises(ValueError, match="n must not be negative, but is -1"):
        arguments.whole_number("n", -1)
    with pytest.raises(ValueError, match="n must not be more than"):
        arguments.whole_number("n", 2**63)


def test_texts() -> None:
    """A string that UTF-8 cannot hold is none that can be sent."""
    assert arguments.text("s", "é" * 16_383) == "é" * 16_383
    with pytest.raises(TypeError, match="s must be a string, not b't'"):
        arguments.text("s", b"t")
    with pytest.raises(ValueError, match="UTF-8"):
        arguments.text("s", NO_TEXT)
    with pytest.raises(ValueError, match="at most 32767 bytes, not 32768"):
        arguments.text("s", "é" * 16_384)


def test_one_alone_is_not_several() -> None:
    """Strings and partitions can be iterated over, but nobody means that."""
    assert arguments.several("things", iter([1, 2])) == [1, 2]
    wrong: list[Any] = ["ab", b"ab", bytearray(b"ab"), T0, 5, None]
    for alone in wrong:
        with pytest.raises(TypeError, match="things must be several"):
            arguments.several("things", alone)
    with pytest.raises(TypeError, match=r"must be TopicPartition\(topic, number\), not 't'"):
        arguments.topic_partitions("partitions", ("t", 0))


# -- producers ----------------------------------------------------------------------------------

UNSENDABLE: list[tuple[type[Exception], dict[str, Any]]] = [
    (TypeError, {"topic": b"t"}),
    (TypeError, {"topic": None}),
    (ValueError, {"topic": NO_TEXT}),
    (TypeError, {"value": "text"}),
    (TypeError, {"value": 5}),
    (TypeError, {"key": "text"}),
    (TypeError, {"timestamp_ms": 1_700_000_000_000.0}),
    (TypeError, {"timestamp_ms": "now"}),
    (TypeError, {"timestamp_ms": True}),
    (ValueError, {"timestamp_ms": 2**63}),
    (ValueError, {"timestamp_ms": -1}),
    (TypeError, {"partition": 0.0}),
    (ValueError, {"partition": -1}),
    (ValueError, {"partition": 2**31}),
    (ValueError, {"headers": [(NO_TEXT, b"x")]}),
    (TypeError, {"headers": [(b"name", b"x")]}),
    (TypeError, {"headers": [("name", "text")]}),
    (TypeError, {"headers": [("name",)]}),
    (TypeError, {"headers": {"name": b"x"}}),
]


async def test_what_cannot_be_sent_is_refused_and_the_rest_is_delivered() -> None:
    """Every wrong argument is told at once; records before and after it are written."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with Producer(fake.bootstrap, linger_ms=20) as producer:
            sent = []
            for number, (error, wrong) in enumerate(UNSENDABLE):
                sent.append(await producer.send("t", b"%d" % number))
                with pytest.raises(error) as told:
                    await producer.send(**{"topic": "t", "value": b"x", **wrong})
                assert not isinstance(told.value, KafkaClientError), wrong
            for delivery in sent:
                await delivery
        assert fake.values("t") == [b"%d" % number for number in range(len(UNSENDABLE))]


async def test_a_partitioner_that_chooses_nothing_is_told() -> None:
    """The program's own partitioner is checked like an argument."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        chooses_nothing: Any = lambda *_: None  # noqa: E731
        async with Producer(fake.bootstrap, partitioner=chooses_nothing) as producer:
            with pytest.raises(TypeError, match="the partitioner's choice"):
                await producer.send("t", b"x")


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_a_batch_that_cannot_be_encoded_fails_alone(
    monkeypatch: pytest.MonkeyPatch, is_idempotent: bool
) -> None:
    """Whatever goes wrong in it: its records fail, others of the same partition are written."""
    encode = Batch.encode

    def encode_or_fail(batch: Batch, *arguments: Any, **options: Any) -> None:
        if b"bad" in batch.values:
            raise OverflowError("no codec can do that")
        encode(batch, *arguments, **options)

    monkeypatch.setattr(Batch, "encode", encode_or_fail)
    async with fake_cluster() as fake:
        fake.add_topic("t", [1, 1])
        settings: dict[str, Any] = {"enable_idempotence": is_idempotent, "batch_size": 0}
        async with Producer(fake.bootstrap, **settings) as producer:
            sent = [
                await producer.send("t", value, partition=partition)
                for value in (b"1", b"bad", b"2", b"bad", b"3")
                for partition in (0, 1)
            ]
            with trio.fail_after(5):
                await producer.flush()
            free = producer.buffered_bytes
        failures = []
        for delivery in sent:
            try:
                delivery.result()
            except KafkaClientError as error:
                failures.append(str(error))
        assert len(failures) == 4
        assert all("no codec can do that" in text for text in failures)
        assert fake.values("t", 0) == fake.values("t", 1) == [b"1", b"2", b"3"]
        assert free == 0


# -- admin clients and consumers ----------------------------------------------------------------

ADMIN_CALLS: list[tuple[str, Call]] = [
    ("create_topics", lambda a: a.create_topics(NewTopic("t"))),
    ("create_topics", lambda a: a.create_topics(["t"])),
    ("create_topics", lambda a: a.create_topics([NewTopic(cast(Any, b"t"))])),
    ("create_topics", lambda a: a.create_topics([NewTopic("t", cast(Any, 1.0))])),
    ("create_topics", lambda a: a.create_topics([NewTopic("t", 2**31)])),
    ("create_topics", lambda a: a.create_topics([NewTopic("t", 1, 2**15)])),
    ("create_topics", lambda a: a.create_topics([NewTopic("t", configs={"a": 1})])),  # type: ignore[dict-item]
    ("create_topics", lambda a: a.create_topics([NewTopic("t", configs={"a": NO_TEXT})])),
    ("create_topics", lambda a: a.create_topics([NewTopic("t", replica_assignment={0: "12"})])),  # type: ignore[dict-item]
    ("delete_topics", lambda a: a.delete_topics("ab")),
    ("delete_topics", lambda a: a.delete_topics([b"ab"])),
    ("create_partitions", lambda a: a.create_partitions({"t": "2"})),
    ("create_partitions", lambda a: a.create_partitions({0: 2})),
    ("describe_topics", lambda a: a.describe_topics("ab")),
    ("describe_configs", lambda a: a.describe_configs("ab")),
    ("describe_configs", lambda a: a.describe_configs(TOPIC)),
    (
        "describe_configs",
        lambda a: a.describe_configs([ConfigResource(ConfigResourceType.BROKER, cast(Any, 1))]),
    ),
    ("incremental_alter_configs", lambda a: a.incremental_alter_configs({TOPIC: "ab"})),
    (
        "incremental_alter_configs",
        lambda a: a.incremental_alter_configs({TOPIC: [AlterConfigOp("a", cast(Any, 1))]}),
    ),
    ("list_offsets", lambda a: a.list_offsets({"t": -1})),
    ("list_offsets", lambda a: a.list_offsets({T0: 1.5})),
    ("delete_records", lambda a: a.delete_records({T0: 1.5})),
    ("delete_records", lambda a: a.delete_records({T0: -2})),
    ("remove_members", lambda a: a.remove_members("g", "ab")),
    ("remove_members", lambda a: a.remove_members("g", [b"a"])),
    ("list_groups", lambda a: a.list_groups(states="Stable")),
    ("list_groups", lambda a: a.list_groups(types="classic")),
    ("describe_groups", lambda a: a.describe_groups("ab")),
    ("delete_groups", lambda a: a.delete_groups("ab")),
    ("list_group_offsets", lambda a: a.list_group_offsets("g", T0)),
    ("list_group_offsets", lambda a: a.list_group_offsets(b"g")),
    ("alter_group_offsets", lambda a: a.alter_group_offsets("g", {T0: 1.5})),
    ("alter_group_offsets", lambda a: a.alter_group_offsets("g", {T0: 2**63})),
    (
        "alter_group_offsets",
        lambda a: a.alter_group_offsets("g", {T0: CommittedOffset(1, None, NO_TEXT)}),
    ),
    ("delete_group_offsets", lambda a: a.delete_group_offsets("g", T0)),
    ("list_transactions", lambda a: a.list_transactions(states="Ongoing")),
    ("list_transactions", lambda a: a.list_transactions(producer_ids=[1.5])),
    ("list_transactions", lambda a: a.list_transactions(min_duration_ms=-1)),
    ("list_transactions", lambda a: a.list_transactions(transactional_id_pattern=b"t")),
    ("describe_transactions", lambda a: a.describe_transactions("ab")),
    ("describe_transactions", lambda a: a.describe_transactions([NO_TEXT])),
    ("fence_producers", lambda a: a.fence_producers("ab")),
    ("abort_transaction", lambda a: a.abort_transaction(AbortTransactionSpec(T0, 1, 2**15, 0))),
    ("describe_producers", lambda a: a.describe_producers(T0)),
    ("describe_producers", lambda a: a.describe_producers([T0], broker_id=-1)),
    ("elect_leaders", lambda a: a.elect_leaders(ElectionType.PREFERRED, T0)),
    ("elect_leaders", lambda a: a.elect_leaders(7)),
    ("alter_partition_reassignments", lambda a: a.alter_partition_reassignments({T0: "12"})),
    ("alter_partition_reassignments", lambda a: a.alter_partition_reassignments({T0: [1.5]})),
    ("list_partition_reassignments", lambda a: a.list_partition_reassignments("ab")),
]
CONSUMER_CALLS: list[tuple[str, Call]] = [
    ("subscribe", lambda c: c.subscribe(b"ab")),
    ("subscribe", lambda c: c.subscribe([T0])),
    ("subscribe", lambda c: c.subscribe([NO_TEXT])),
    ("subscribe", lambda c: c.subscribe(re.compile(b"ab"))),
    ("assign", lambda c: _now(c.assign, "ab")),
    ("assign", lambda c: _now(c.assign, T0)),
    ("assign", lambda c: _now(c.assign, [("t", -1)])),
    ("assign", lambda c: _now(c.assign, [("t", 1.0)])),
    ("commit", lambda c: c.commit({T0: 1.5})),
    ("commit", lambda c: c.commit({"t": 1})),
    ("commit", lambda c: c.commit({T0: OffsetAndMetadata(1, -1, NO_TEXT)})),
    ("commit", lambda c: c.commit({T0: OffsetAndMetadata(1, 2**31)})),
    ("commit_async", lambda c: _now(c.commit_async, {T0: 2**63})),
    ("committed", lambda c: c.committed("ab")),
    ("committed", lambda c: c.committed(T0)),
    ("offsets_for_times", lambda c: c.offsets_for_times({T0: 1.5})),
    ("beginning_offsets", lambda c: c.beginning_offsets(T0)),
    ("end_offsets", lambda c: c.end_offsets("ab")),
    ("partitions_for", lambda c: c.partitions_for(b"t")),
]


async def _now(call: Callable[[Any], object], argument: Any) -> None:
    call(argument)


@pytest.mark.parametrize(("name", "call"), ADMIN_CALLS)
async def test_an_admin_client_refuses_before_it_asks(name: str, call: Call) -> None:
    """Nobody listens there: whoever asked first would time out."""
    async with Admin(NOBODY) as admin:
        with trio.fail_after(2), pytest.raises((TypeError, ValueError)) as told:
            await call(admin)
    assert not isinstance(told.value, KafkaClientError)


@pytest.mark.parametrize(("name", "call"), CONSUMER_CALLS)
async def test_a_consumer_refuses_before_it_asks(name: str, call: Call) -> None:
    """So does a consumer, which would meet the value again and again beside the program."""
    async with Consumer(NOBODY, group_id="g", enable_auto_commit=False) as consumer:
        with trio.fail_after(2), pytest.raises((TypeError, ValueError)) as told:
            await call(consumer)
        assert not isinstance(told.value, KafkaClientError)


@pytest.mark.parametrize(("client", "calls"), [(Admin, ADMIN_CALLS), (Consumer, CONSUMER_CALLS)])
def test_every_call_that_takes_several_is_tried(client: type, calls: list[Any]) -> None:
    """A call that is new appears in the lists above."""
    tried = {name for name, _ in calls}
    for name, function in inspect.getmembers(client, inspect.isfunction):
        if name.startswith("_"):
            continue
        for parameter in inspect.signature(function).parameters.values():
            if re.search(r"Iterable|Mapping|Sequence|Topics", str(parameter.annotation)):
                assert name in tried, f"{client.__name__}.{name}({parameter})"


async def test_seek_takes_whole_numbers() -> None:
    async with Consumer(NOBODY) as consumer:
        consumer.assign([T0])
        wrong: list[Any] = [1.5, True, "1", OffsetAndMetadata(1, metadata=5)]  # type: ignore[arg-type]
        for offset in wrong:
            with pytest.raises(TypeError):
                consumer.seek(T0, offset)
        with pytest.raises(ValueError, match="more than"):
            consumer.seek(T0, 2**63)


# -- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (ProducerConfig, {"client_id": NO_TEXT}),
        (ProducerConfig, {"client_id": "x" * 32_768}),
        (ProducerConfig, {"request_timeout_ms": 2**31, "delivery_timeout_ms": 2**31 + 5}),
        (ProducerConfig, {"batch_size": 1e6}),
        (ConsumerConfig, {"group_id": NO_TEXT}),
        (ConsumerConfig, {"group_id": "g", "group_instance_id": NO_TEXT}),
        (ConsumerConfig, {"client_rack": 5}),
        (ConsumerConfig, {"fetch_max_bytes": 2**31}),
        (ConsumerConfig, {"fetch_max_wait_ms": 2**31}),
        (ConsumerConfig, {"session_timeout_ms": 2**31}),
        (ConsumerConfig, {"max_poll_interval_ms": 2**31}),
    ],
)
def test_settings_that_no_request_can_hold(kind: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make_config(kind, NOBODY, settings)


async def test_what_slips_through_is_no_question_of_versions() -> None:
    """A request that cannot be encoded tells so, and nothing of brokers that are too old."""
    async with fake_cluster() as fake, Producer(fake.bootstrap) as producer:
        assert producer._cluster is not None
        wrong: Any = MetadataRequest(topics=[MetadataRequestTopic(name=5)])  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError, match="cannot be sent: MetadataRequest") as told:
            await producer._cluster.request_any(wrong)
        assert isinstance(told.value, TypeError)
        assert isinstance(told.value, ValueError)
