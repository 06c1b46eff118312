"""What programs write with our clients, against a broker: loops that commit, lag, times."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from kraftrio import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    OffsetSpec,
    PartitionLag,
    Producer,
    TopicPartition,
    json_deserializer,
    json_serializer,
    string_deserializer,
    string_serializer,
)
from kraftrio.errors import GroupIdNotFoundError, RecordDeserializationError
from tests.conformance.clients import scenarios

pytestmark = scenarios.MARKS

README = Path(__file__).resolve().parents[3] / "README.md"
DEADLINE_S = 60
Names = Callable[[], str]


def test_the_readme_s_first_program(bootstrap: str) -> None:
    """As it stands there: it sends a record, and reads what there is until it is interrupted."""
    section = README.read_text().partition("## Python clients\n")[2]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    with subprocess.Popen(
        [sys.executable, "-c", code.replace("localhost:9092", bootstrap)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert re.fullmatch(r"greetings-\d at 0\n", process.stdout.readline())
            assert process.stdout.readline() == "0 b'en' b'hello'\n"
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE_S)
        finally:
            process.kill()


async def test_a_loop_that_commits_and_its_lag(
    bootstrap: str, unique_topic: Names, unique_group: Names
) -> None:
    """A record whose body raises is not committed; the lag counts it, and the rest."""
    topic, group = unique_topic(), unique_group()
    t0, t1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    with trio.fail_after(DEADLINE_S):
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topics(NewTopic(topic, 2, 1))
            for number in range(5):
                sent = await producer.send_and_wait(topic, b"%d" % number, partition=0)
                assert (sent.partition, sent.offset) == (0, number)
            with pytest.raises(ZeroDivisionError):
                async with Consumer(bootstrap, **settings) as consumer:  # type: ignore[arg-type]
                    await consumer.subscribe(topic)
                    async for record in consumer.committed():
                        _ = 1 / (3 - record.offset)
            lag = await admin.consumer_group_lag(group)
            assert lag[t0] == PartitionLag(3, 5, 2)
            assert lag.get(t1, PartitionLag(0, 0, 0)) in {(0, 0, 0), (None, 0, None)}
            async with Consumer(bootstrap, **settings) as consumer:  # type: ignore[arg-type]
                await consumer.subscribe(topic)
                seen = []
                async for record in consumer.committed():
                    seen.append(record.offset)
                    if record.offset == 4:
                        await consumer.commit()
                        break
                assert seen == [3, 4]
                assert (await admin.consumer_group_lag(group))[t0].lag == 0
            with pytest.raises(GroupIdNotFoundError):
                await admin.consumer_group_lag("nobody-is-in-this-group")


async def test_times_in_python_s_types(bootstrap: str, unique_topic: Names) -> None:
    """Records are given times, and found by them."""
    topic = unique_topic()
    t0 = TopicPartition(topic, 0)
    now = datetime.now(UTC)
    with trio.fail_after(DEADLINE_S):
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topics(NewTopic(topic, 1, 1, {"retention.ms": timedelta(days=7)}))
            for hours in (3, 2, 1, 0):
                await producer.send(
                    topic,
                    b"%d" % hours,
                    headers={"hours": b"%d" % hours},
                    timestamp_ms=now - timedelta(hours=hours),
                )
            await producer.flush()
            for moment, offset in (
                (timedelta(minutes=90), 2),
                (now - timedelta(hours=2), 1),
                (OffsetSpec.LATEST, 4),
            ):
                assert (await admin.list_offsets({t0: moment}))[t0].offset == offset
            async with Consumer(bootstrap) as consumer:
                consumer.assign(t0)
                await consumer.seek_to_time(timedelta(minutes=150))
                records = [await anext(consumer), await anext(consumer)]
                assert [record.value for record in records] == [b"2", b"1"]
                assert records[0].headers == (("hours", b"2"),)
                newest = (await consumer.offsets.for_times({t0: now}))[t0]
                assert newest is not None and newest.offset == 3
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            changes: list[dict[str, object] | AlterConfigOp] = [
                {"cleanup.policy": ["compact", "delete"], "preallocate": True},
                AlterConfigOp("max.message.bytes", 2_000_000),
            ]
            for change in changes:
                await admin.incremental_alter_configs({resource: change})  # type: ignore[dict-item]
            entries = (await admin.describe_configs(resource))[resource]
            names = ("retention.ms", "cleanup.policy", "preallocate", "max.message.bytes")
            values = [entries[name].value for name in names]
            assert values == ["604800000", "compact,delete", "true", "2000000"]


async def test_keys_and_values_that_are_not_bytes(
    bootstrap: str, unique_topic: Names, unique_group: Names
) -> None:
    """Written and read as JSON; what is not JSON raises, and its bytes are sent elsewhere."""
    topic, group = unique_topic(), unique_group()
    with trio.fail_after(DEADLINE_S):
        async with (
            Producer(
                bootstrap, key_serializer=string_serializer, value_serializer=json_serializer
            ) as producer,
            Producer(bootstrap) as raw,
        ):
            await producer.send_and_wait(topic, {"n": 1}, key="é", partition=0)
            await raw.send_and_wait(topic, b"{", partition=0)
            await producer.send_and_wait(topic, None, key="é", partition=0)
        async with Consumer(
            bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            key_deserializer=string_deserializer,
            value_deserializer=json_deserializer,
        ) as consumer:
            await consumer.subscribe(topic)
            found: list[object] = []
            while len(found) < 2:
                try:
                    async for record in consumer.committed():
                        found.append((record.offset, record.key, record.value))
                        if len(found) == 2:
                            break
                except RecordDeserializationError as error:
                    assert (error.offset, error.value) == (1, b"{")
                    consumer.skip(error)
            assert found == [(0, "é", {"n": 1}), (2, "é", None)]
