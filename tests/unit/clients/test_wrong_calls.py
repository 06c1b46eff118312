"""What cannot be sent is refused where it is handed over, and takes nothing else with it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.groups import CommittedOffset
from kraftrio.clients.admin.transactions import TransactionAdmin
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
from kraftrio.clients.consumer.partition_offsets import PartitionOffsets
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


# -- producers ----------------------------------------------------------------------------------

UNSENDABLE: list[tuple[type[Exception], dict[str, Any], str]] = [
    (TypeError, {"topic": b"t"}, "topic must be a string, not b't'"),
    (TypeError, {"topic": None}, "topic must be a string, not None"),
    (ValueError, {"topic": NO_TEXT}, "topic must be text that UTF-8 can hold"),
    (TypeError, {"value": "text"}, "value must be bytes or None, not str: encode it"),
    (TypeError, {"value": 5}, "value must be bytes or None, not int"),
    (TypeError, {"key": "text"}, "key must be bytes or None, not str"),
    (
        TypeError,
        {"timestamp_ms": 1.7e12},
        "timestamp_ms must be milliseconds since 1970 as a whole",
    ),
    (TypeError, {"timestamp_ms": "now"}, "or a datetime, not 'now'"),
    (TypeError, {"timestamp_ms": True}, "or a datetime, not True"),
    (TypeError, {"timestamp_ms": timedelta(1)}, "or a datetime, not datetime.timedelta(days=1)"),
    (ValueError, {"timestamp_ms": datetime(2024, 1, 1)}, "a datetime with a time zone, such as"),
    (ValueError, {"timestamp_ms": 2**63}, "timestamp_ms must not be more than 9223372036854775807"),
    (ValueError, {"timestamp_ms": -1}, "timestamp_ms must not be negative, but is -1"),
    (TypeError, {"partition": 0.0}, "partition must be a whole number, not 0.0"),
    (ValueError, {"partition": -1}, "partition must not be negative, but is -1"),
    (ValueError, {"partition": 2**31}, "partition must not be more than 2147483647"),
    (ValueError, {"headers": [(NO_TEXT, b"x")]}, "the name of a header must be text that UTF-8"),
    (
        TypeError,
        {"headers": [(b"name", b"x")]},
        "the name of a header must be a string, not b'name'",
    ),
    (
        TypeError,
        {"headers": [("name", "text")]},
        "header 'name' must be bytes or None, not the str",
    ),
    (TypeError, {"headers": {"name": 5}}, "header 'name' must be bytes or None, not int"),
    (TypeError, {"headers": [("name",)]}, "a header must be a pair of a name and bytes or None"),
    (
        TypeError,
        {"headers": "name"},
        "headers must be a dict, or pairs of a name and bytes, not 'na",
    ),
]


async def test_what_cannot_be_sent_is_refused_and_the_rest_is_delivered() -> None:
    """Every wrong argument raises at once; records before and after it are written."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with Producer(fake.bootstrap, linger_ms=20) as producer:
            sent = []
            for number, (error, wrong, sentence) in enumerate(UNSENDABLE):
                sent.append(await producer.send("t", b"%d" % number))
                with pytest.raises(error, match=re.escape(sentence)) as raised:
                    await producer.send(**{"topic": "t", "value": b"x", **wrong})
                assert not isinstance(raised.value, KafkaClientError), wrong
            for delivery in sent:
                await delivery
        assert fake.values("t") == [b"%d" % number for number in range(len(UNSENDABLE))]


@pytest.mark.parametrize("values", ["text", b"bytes", 5, None])
async def test_values_that_are_no_list(values: Any) -> None:
    async with Producer(NOBODY) as producer:
        with pytest.raises(TypeError, match=f"values must be a list of values, not {values!r}"):
            await producer.send_values("t", values)


async def test_a_partitioner_that_chooses_nothing_is_an_error() -> None:
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


_TAKES_SEVERAL = re.compile(r"Iterable|Mapping|Sequence|Topics|Texts|Partitions|Moment")


def _create(*topic: Any, **settings: Any) -> Call:
    return lambda admin: admin.create_topics(NewTopic(*topic, **settings))


ADMIN_CALLS: list[tuple[str, Call, str]] = [
    ("create_topics", lambda a: a.create_topics("t"), "topics must be one NewTopic, or a list of"),
    ("create_topics", lambda a: a.create_topics(["t"]), "must be a NewTopic, not 't'"),
    ("create_topics", _create(cast(Any, b"t")), "a topic must be a string, not b't'"),
    ("create_topics", _create("t", cast(Any, 1.0)), "num_partitions must be a whole number, not"),
    ("create_topics", _create("t", 2**31), "num_partitions must not be more than 2147483647"),
    ("create_topics", _create("t", 1, 2**15), "replication_factor must not be more than 32767"),
    (
        "create_topics",
        _create("t", configs={"a": cast(Any, {})}),
        "a must be a string, a number, Tr",
    ),
    ("create_topics", _create("t", configs={"a": NO_TEXT}), "a must be text that UTF-8 can hold"),
    ("create_topics", _create("t", configs=cast(Any, ["a"])), "configs must be a dict, not ['a']"),
    (
        "create_topics",
        _create("t", replica_assignment={0: cast(Any, "12")}),
        "brokers must be one whole number, or a list of such, not '12'",
    ),
    ("delete_topics", lambda a: a.delete_topics(b"ab"), "topics must be one string, or a list of"),
    ("delete_topics", lambda a: a.delete_topics([b"ab"]), "a topic must be a string, not b'ab'"),
    (
        "create_partitions",
        lambda a: a.create_partitions({"t": "2"}),
        "must be a whole number, not '2'",
    ),
    ("create_partitions", lambda a: a.create_partitions({0: 2}), "a topic must be a string, not 0"),
    ("create_partitions", lambda a: a.create_partitions("t"), "new_totals must be a dict, not 't'"),
    ("describe_topics", lambda a: a.describe_topics(T0), "topics must be one string, or a list of"),
    (
        "describe_configs",
        lambda a: a.describe_configs("ab"),
        "must be one ConfigResource, or a list",
    ),
    (
        "describe_configs",
        lambda a: a.describe_configs(ConfigResource(ConfigResourceType.BROKER, cast(Any, 1))),
        "the name of a resource must be a string, not 1",
    ),
    (
        "incremental_alter_configs",
        lambda a: a.incremental_alter_configs({TOPIC: "ab"}),
        "changes of one resource must be one AlterConfigOp, or a list of such, not 'ab'",
    ),
    (
        "incremental_alter_configs",
        lambda a: a.incremental_alter_configs({TOPIC: AlterConfigOp("a", cast(Any, b"1"))}),
        "a must be a string, a number, True or False, a timedelta or a list of strings, not b'1'",
    ),
    ("list_offsets", lambda a: a.list_offsets({"t": -1}), "must be TopicPartition(topic, number)"),
    ("list_offsets", lambda a: a.list_offsets({T0: 1.5}), "a timestamp must be milliseconds since"),
    (
        "list_offsets",
        lambda a: a.list_offsets({T0: -99}),
        "a timestamp must not be negative, but is",
    ),
    ("list_offsets", lambda a: a.list_offsets({T0: "earliest"}), "such as OffsetSpec.EARLIEST"),
    ("list_offsets", lambda a: a.list_offsets(T0), "wanted must be a dict, not TopicPartition("),
    ("delete_records", lambda a: a.delete_records({T0: 1.5}), "an offset must be a whole number"),
    ("delete_records", lambda a: a.delete_records({T0: -2}), "an offset must not be less than -1"),
    ("remove_members", lambda a: a.remove_members("g", b"a"), "must be one string, or a list of"),
    (
        "remove_members",
        lambda a: a.remove_members("g", [b"a"]),
        "a group_instance_id must be a str",
    ),
    ("list_groups", lambda a: a.list_groups(states=[5]), "a state must be a string, not 5"),
    ("list_groups", lambda a: a.list_groups(timeout_ms=-1), "timeout_ms must not be negative, but"),
    (
        "list_groups",
        lambda a: a.list_groups(timeout_ms="5"),
        "milliseconds, or a timedelta, not '5'",
    ),
    (
        "describe_groups",
        lambda a: a.describe_groups(None),
        "group_ids must be one string, or a list",
    ),
    ("delete_groups", lambda a: a.delete_groups([5]), "a group_id must be a string, not 5"),
    (
        "list_group_offsets",
        lambda a: a.list_group_offsets("g", "t"),
        "must be one TopicPartition, or",
    ),
    (
        "list_group_offsets",
        lambda a: a.list_group_offsets(b"g"),
        "group_id must be a string, not b'g",
    ),
    (
        "alter_group_offsets",
        lambda a: a.alter_group_offsets("g", {T0: 1.5}),
        "must be a whole number",
    ),
    (
        "alter_group_offsets",
        lambda a: a.alter_group_offsets("g", {T0: 2**63}),
        "must not be more than",
    ),
    (
        "alter_group_offsets",
        lambda a: a.alter_group_offsets("g", [T0]),
        "offsets must be a dict, not",
    ),
    (
        "alter_group_offsets",
        lambda a: a.alter_group_offsets("g", {T0: CommittedOffset(1, None, NO_TEXT)}),
        "the metadata of a commit must be text that UTF-8 can hold",
    ),
    (
        "delete_group_offsets",
        lambda a: a.delete_group_offsets("g", "t"),
        "must be one TopicPartition",
    ),
    (
        "transactions.list_ids",
        lambda a: a.transactions.list_ids(states=5),
        "states must be one string, or a",
    ),
    (
        "transactions.list_ids",
        lambda a: a.transactions.list_ids(producer_ids=[1.5]),
        "a producer id must be",
    ),
    (
        "transactions.list_ids",
        lambda a: a.transactions.list_ids(min_duration_ms=-1),
        "must not be negative",
    ),
    (
        "transactions.list_ids",
        lambda a: a.transactions.list_ids(transactional_id_pattern=b"t"),
        "transactional_id_pattern must be a string, not b't'",
    ),
    (
        "transactions.describe",
        lambda a: a.transactions.describe([NO_TEXT]),
        "text that UTF-8 can hold",
    ),
    (
        "transactions.fence_producers",
        lambda a: a.transactions.fence_producers(5),
        "transactional_ids must be one string, or a",
    ),
    (
        "transactions.abort",
        lambda a: a.transactions.abort(AbortTransactionSpec(T0, 1, 2**15, 0)),
        "producer_epoch must not be more than 32767",
    ),
    (
        "transactions.abort",
        lambda a: a.transactions.abort(T0),
        "must be an AbortTransactionSpec, not",
    ),
    (
        "transactions.describe_producers",
        lambda a: a.transactions.describe_producers("t"),
        "must be one TopicPartition, or a",
    ),
    (
        "transactions.describe_producers",
        lambda a: a.transactions.describe_producers(T0, broker_id=-1),
        "must not be negative",
    ),
    (
        "describe_log_dirs",
        lambda a: a.describe_log_dirs("1"),
        "must be one whole number, or a list",
    ),
    ("unregister_broker", lambda a: a.unregister_broker("3"), "must be a whole number, not '3'"),
    ("elect_leaders", lambda a: a.elect_leaders(ElectionType.PREFERRED, "t"), "one TopicPartition"),
    ("elect_leaders", lambda a: a.elect_leaders(7), "7 is not a valid ElectionType"),
    (
        "alter_partition_reassignments",
        lambda a: a.alter_partition_reassignments({T0: "12"}),
        "brokers must be one whole number, or a list of such, not '12'",
    ),
    (
        "alter_partition_reassignments",
        lambda a: a.alter_partition_reassignments({T0: [1.5]}),
        "the id of a broker must be a whole number, not 1.5",
    ),
    (
        "list_partition_reassignments",
        lambda a: a.list_partition_reassignments("ab"),
        "partitions must be one TopicPartition, or a list of such, not 'ab'",
    ),
]
CONSUMER_CALLS: list[tuple[str, Call, str]] = [
    ("subscribe", lambda c: c.subscribe("t", listener=5), "listener must be a RebalanceListener"),
    ("commit_async", lambda c: _commit_async(c, 5), "callback must be a function or None, not 5"),
    (
        "subscribe",
        lambda c: c.subscribe(b"ab"),
        "topics must be one string, or a list of such, not",
    ),
    ("subscribe", lambda c: c.subscribe([T0]), "a topic must be a string, not TopicPartition("),
    ("subscribe", lambda c: c.subscribe([NO_TEXT]), "a topic must be text that UTF-8 can hold"),
    ("subscribe", lambda c: c.subscribe(re.compile(b"ab")), "a pattern of topics must be a string"),
    (
        "assign",
        lambda c: _now(c.assign, "ab"),
        "must be one TopicPartition, or a list of such, not",
    ),
    (
        "assign",
        lambda c: _now(c.assign, ["ab"]),
        "a partition must be TopicPartition(topic, number)",
    ),
    (
        "assign",
        lambda c: _now(c.assign, [("t", -1)]),
        "a partition must not be negative, but is -1",
    ),
    (
        "assign",
        lambda c: _now(c.assign, [("t", 1.0)]),
        "a partition must be a whole number, not 1.0",
    ),
    ("pause", lambda c: _now(c.pause, T0), "t-0 is not assigned to this consumer"),
    (
        "pause",
        lambda c: _now(c.pause, "t"),
        "must be one TopicPartition, or a list of such, not 't'",
    ),
    ("resume", lambda c: _now(c.resume, [T0]), "t-0 is not assigned to this consumer"),
    ("seek_to_beginning", lambda c: _now(c.seek_to_beginning, T0), "t-0 is not assigned to this"),
    ("seek_to_end", lambda c: _now(c.seek_to_end, "t"), "must be one TopicPartition, or a list of"),
    ("seek_to_time", lambda c: c.seek_to_time(1.5), "timestamp_ms must be milliseconds since 1970"),
    ("seek_to_time", lambda c: c.seek_to_time(datetime(2024, 1, 1)), "a datetime with a time zone"),
    (
        "poll",
        lambda c: c.poll("1"),
        "timeout_ms must be a number of milliseconds, or a timedelta, not",
    ),
    ("poll", lambda c: c.poll(-1), "timeout_ms must not be negative, but is -1"),
    ("poll", lambda c: c.poll(max_records=0), "max_records must not be less than 1, but is 0"),
    ("commit", lambda c: c.commit({T0: 1.5}), "an offset must be a whole number, not 1.5"),
    (
        "commit",
        lambda c: c.commit({"t": 1}),
        "a partition must be TopicPartition(topic, number), not",
    ),
    ("commit", lambda c: c.commit(T0), "offsets must be a dict, not TopicPartition("),
    ("commit", lambda c: c.commit({T0: OffsetAndMetadata(1, -1, NO_TEXT)}), "text that UTF-8 can"),
    (
        "commit",
        lambda c: c.commit({T0: OffsetAndMetadata(1, 2**31)}),
        "must not be more than 2147483647",
    ),
    (
        "commit_async",
        lambda c: _now(c.commit_async, {T0: 2**63}),
        "an offset must not be more than",
    ),
    (
        "offsets.committed",
        lambda c: c.offsets.committed("ab"),
        "partitions must be one TopicPartition, or a list of",
    ),
    (
        "offsets.for_times",
        lambda c: c.offsets.for_times({T0: 1.5}),
        "a timestamp must be milliseconds",
    ),
    (
        "offsets.for_times",
        lambda c: c.offsets.for_times(T0),
        "timestamps_ms must be a dict, not Topic",
    ),
    (
        "offsets.beginning",
        lambda c: c.offsets.beginning("t"),
        "must be one TopicPartition, or a list",
    ),
    (
        "offsets.end",
        lambda c: c.offsets.end("ab"),
        "partitions must be one TopicPartition, or a list",
    ),
    ("partitions_for", lambda c: c.partitions_for(b"t"), "topic must be a string, not b't'"),
]


def _refused(sentence: str) -> pytest.RaisesExc[TypeError | ValueError]:
    return pytest.raises((TypeError, ValueError), match=re.escape(sentence))


async def _commit_async(consumer: Consumer, callback: Any) -> None:
    consumer.commit_async({T0: 1}, callback)


async def _now(call: Callable[[Any], object], argument: Any) -> None:
    call(argument)


@pytest.mark.parametrize(("name", "call", "sentence"), ADMIN_CALLS)
async def test_an_admin_client_refuses_before_it_asks(name: str, call: Call, sentence: str) -> None:
    """Nothing listens there: a client that connected first would time out."""
    async with Admin(NOBODY) as admin:
        with trio.fail_after(2), _refused(sentence) as raised:
            await call(admin)
    assert not isinstance(raised.value, KafkaClientError)


@pytest.mark.parametrize(("name", "call", "sentence"), CONSUMER_CALLS)
async def test_a_consumer_refuses_before_it_asks(name: str, call: Call, sentence: str) -> None:
    """So does a consumer, which would meet the value again and again beside the program."""
    async with Consumer(NOBODY, group_id="g", enable_auto_commit=False) as consumer:
        with trio.fail_after(2), _refused(sentence) as raised:
            await call(consumer)
        assert not isinstance(raised.value, KafkaClientError)


@pytest.mark.parametrize(
    ("client", "part", "calls"),
    [
        (Admin, "", ADMIN_CALLS),
        (TransactionAdmin, "transactions.", ADMIN_CALLS),
        (Consumer, "", CONSUMER_CALLS),
        (PartitionOffsets, "offsets.", CONSUMER_CALLS),
    ],
)
def test_every_call_that_takes_several_is_tried(client: type, part: str, calls: list[Any]) -> None:
    """A call that is new appears in the lists above."""
    tried = {name for name, *_ in calls}
    for name, function in inspect.getmembers(client, inspect.isfunction):
        if name.startswith("_"):
            continue
        for parameter in inspect.signature(function).parameters.values():
            if _TAKES_SEVERAL.search(str(parameter.annotation)):
                assert f"{part}{name}" in tried, f"{client.__name__}.{name}({parameter})"


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
    ("kind", "settings", "sentence"),
    [
        (ProducerConfig, {"ack": "all"}, "unknown setting ack; did you mean 'acks'?"),
        (ProducerConfig, {"linger.ms": 5}, "unknown setting linger.ms; did you mean 'linger_ms'?"),
        (ProducerConfig, {"zebra": 5}, "unknown setting zebra"),
        (ConsumerConfig, {"group": "g"}, "unknown setting group; did you mean 'group_id'?"),
        (ConsumerConfig, {"auto_offset_rest": "x"}, "did you mean 'auto_offset_reset'?"),
        (ProducerConfig, {"acks": "al"}, "acks must be one of all, -1, 0, 1, not 'al'"),
        (ProducerConfig, {"compression_type": "gzp"}, "not 'gzp'; did you mean 'gzip'?"),
        (ProducerConfig, {"client_id": NO_TEXT}, "client_id must be text that UTF-8 can hold"),
        (ProducerConfig, {"client_id": "x" * 32_768}, "client_id must have at most 32767 bytes"),
        (
            ProducerConfig,
            {"request_timeout_ms": 2**31, "delivery_timeout_ms": 2**31 + 5},
            "request_timeout_ms must be at most 2147483647",
        ),
        (ProducerConfig, {"batch_size": 1e6}, "batch_size must be a whole number, not 1000000.0"),
        (
            ProducerConfig,
            {"linger_ms": 5.5},
            "linger_ms must be milliseconds as a whole number, or",
        ),
        (ProducerConfig, {"linger_ms": timedelta(-1)}, "linger_ms must not be negative, but is"),
        (ProducerConfig, {"batch_size": timedelta(1)}, "batch_size must not be a time, but is"),
        (ConsumerConfig, {"group_id": NO_TEXT}, "group_id must be text that UTF-8 can hold"),
        (ConsumerConfig, {"group_id": 5}, "group_id must be a string, not 5"),
        (
            ConsumerConfig,
            {"group_id": "g", "group_instance_id": NO_TEXT},
            "group_instance_id must be text that UTF-8 can hold",
        ),
        (ConsumerConfig, {"enable_auto_commit": "no"}, "enable_auto_commit must be True or False"),
        (ConsumerConfig, {"client_rack": 5}, "client_rack must be a string, not 5"),
        (ConsumerConfig, {"fetch_max_bytes": 2**31}, "fetch_max_bytes must be at most 2147483647"),
        (ConsumerConfig, {"fetch_max_wait_ms": 2**31}, "fetch_max_wait_ms must be at most"),
        (ConsumerConfig, {"session_timeout_ms": 2**31}, "session_timeout_ms must be at most"),
        (ConsumerConfig, {"max_poll_interval_ms": 2**31}, "max_poll_interval_ms must be at most"),
    ],
)
def test_wrong_settings(kind: Any, settings: dict[str, Any], sentence: str) -> None:
    """A setting's error is a ConfigError, whatever is wrong with it, and one sentence."""
    with pytest.raises(ConfigError, match=re.escape(sentence)) as raised:
        make_config(kind, NOBODY, settings)
    assert isinstance(raised.value, TypeError) and isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("servers", "sentence"),
    [
        ("http://localhost:9092", "not 'http://localhost:9092'; did you mean 'localhost:9092'?"),
        ("https://kafka.example.com/", "did you mean 'kafka.example.com:9092'?"),
        ("localhost", "must be HOST:PORT, not 'localhost'; did you mean 'localhost:9092'?"),
        ("localhost:port", "must be HOST:PORT, not 'localhost:port'"),
        ("localhost:99999", "must be HOST:PORT, not 'localhost:99999'"),
        ("", "bootstrap_servers names no broker"),
        (b"localhost:9092", "must be HOST:PORT, or several, not b'localhost:9092'"),
        (9092, "must be HOST:PORT, or several, not 9092"),
        ([9092], "must be HOST:PORT, not 9092"),
    ],
)
def test_wrong_addresses(servers: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        Producer(servers)


def test_times_of_settings() -> None:
    """A timedelta is milliseconds; the delivery timeout's default still gives way to it."""
    producer = Producer(
        NOBODY, linger_ms=timedelta(seconds=1), request_timeout_ms=timedelta(minutes=3)
    )
    assert producer.config.linger_ms == 1_000
    assert producer.config.delivery_timeout_ms == 181_000


async def test_what_slips_through_is_no_question_of_versions() -> None:
    """The error says that the request cannot be encoded, not that brokers are too old."""
    async with fake_cluster() as fake, Producer(fake.bootstrap) as producer:
        assert producer._cluster is not None
        wrong: Any = MetadataRequest(topics=[MetadataRequestTopic(name=5)])  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError, match="cannot be sent: MetadataRequest") as raised:
            await producer._cluster.request_any(wrong)
        assert isinstance(raised.value, TypeError)
        assert isinstance(raised.value, ValueError)
