"""A program of a user's: what it does wrong, type checkers see, and the clients say the same.

Each mistake has a comment that has mypy overlook it; a comment that is not needed is an error of
mypy's, so that the check of the types shows that every one of them is found. pyright has to find an
error in each of these lines, and in no other.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

import pytest
import trio

from kraftrio import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    ConsumerRecord,
    Delivery,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    Producer,
    ShareConsumer,
    TopicPartition,
    json_serializer,
    string_deserializer,
    string_serializer,
)

ROOT = Path(__file__).resolve().parents[3]
NOBODY = "127.0.0.1:1"
MARK = "# type: ignore["
T0 = TopicPartition("t", 0)
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")


async def is_right(admin: Admin, consumer: Consumer, producer: Producer) -> None:
    """One or several, and Python's own types; never run."""
    moment = datetime.now(UTC)
    await admin.create_topics(NewTopic("t", configs={"retention.ms": timedelta(days=1), "a": True}))
    await admin.delete_topics("t")
    await admin.delete_topics(["t", "u"], timeout_ms=timedelta(seconds=5))
    await admin.list_offsets({T0: OffsetSpec.EARLIEST, TopicPartition("t", 1): moment})
    await admin.incremental_alter_configs({TOPIC: {"retention.ms": 5, "cleanup.policy": None}})
    await admin.incremental_alter_configs({TOPIC: [AlterConfigOp("retention.ms", 5)]})
    await consumer.subscribe("t")
    await consumer.subscribe(["t", "u"])
    consumer.assign(T0)
    consumer.assign([T0])
    consumer.pause(T0)
    await consumer.seek_to_time(timedelta(hours=1))
    await consumer.seek_to_time(moment, T0)
    await producer.send("t", b"x", headers={"a": b"1"}, timestamp_ms=moment)
    assert_type(await producer.send("t", b"x"), Delivery)
    assert_type(await anext(consumer), ConsumerRecord[bytes, bytes])
    assert_type((await anext(consumer.committed())).value, bytes | None)
    assert_type(
        await consumer.offsets.committed(T0), dict[TopicPartition, OffsetAndMetadata | None]
    )
    strings = Consumer(NOBODY, group_id="g", value_deserializer=string_deserializer)
    assert_type(strings, Consumer[bytes, str])
    async for record in strings.committed():
        assert_type(record.value, str | None)
    shared = ShareConsumer(NOBODY, group_id="g", key_deserializer=string_deserializer)
    async for work in shared:
        assert_type(work.key, str | None)
    writer = Producer(NOBODY, key_serializer=string_serializer, value_serializer=json_serializer)
    await writer.send_and_wait("t", {"a": 1}, key="k")


WRONG: list[Callable[[Admin, Consumer, Producer], object]] = [
    lambda a, c, p: Producer(NOBODY, ack="all"),  # type: ignore[call-arg]
    lambda a, c, p: Producer(NOBODY, linger_ms=0.5),  # type: ignore[arg-type]
    lambda a, c, p: Producer(NOBODY, acks="al"),  # type: ignore[arg-type]
    lambda a, c, p: Producer(NOBODY, value_serializer="json"),  # type: ignore[arg-type]
    lambda a, c, p: Producer(9092),  # type: ignore[arg-type]
    lambda a, c, p: Consumer(NOBODY, group="g"),  # type: ignore[call-arg]
    lambda a, c, p: Consumer(NOBODY, enable_auto_commit="no"),  # type: ignore[arg-type]
    lambda a, c, p: p.send("t", "text"),  # type: ignore[arg-type]
    lambda a, c, p: p.send("t", b"x", key="text"),  # type: ignore[arg-type]
    lambda a, c, p: p.send(b"t", b"x"),  # type: ignore[arg-type]
    lambda a, c, p: p.send("t", b"x", timestamp_ms=1.5),  # type: ignore[arg-type]
    lambda a, c, p: p.send("t", b"x", timestamp_ms=timedelta(1)),  # type: ignore[arg-type]
    lambda a, c, p: p.send("t", b"x", headers={"a": "1"}),  # type: ignore[arg-type]
    lambda a, c, p: p.send("t", b"x", headers=[("a",)]),  # type: ignore[list-item]
    lambda a, c, p: c.subscribe(b"t"),  # type: ignore[arg-type]
    lambda a, c, p: c.subscribe(T0),  # type: ignore[arg-type]
    lambda a, c, p: c.assign("t"),  # type: ignore[arg-type]
    lambda a, c, p: c.assign(["t"]),  # type: ignore[list-item]
    lambda a, c, p: c.pause("t"),  # type: ignore[arg-type]
    lambda a, c, p: c.poll("5"),  # type: ignore[arg-type]
    lambda a, c, p: c.commit({"t": 5}),  # type: ignore[dict-item]
    lambda a, c, p: c.seek_to_time("yesterday"),  # type: ignore[arg-type]
    lambda a, c, p: a.create_topics("t"),  # type: ignore[arg-type]
    lambda a, c, p: a.create_topics(NewTopic("t", configs={"a": object()})),  # type: ignore[dict-item]
    lambda a, c, p: a.delete_topics(b"t"),  # type: ignore[arg-type]
    lambda a, c, p: a.delete_topics(T0),  # type: ignore[arg-type]
    lambda a, c, p: a.list_offsets({T0: "earliest"}),  # type: ignore[dict-item]
    lambda a, c, p: a.describe_configs("t"),  # type: ignore[arg-type]
    lambda a, c, p: a.list_groups(timeout_ms="5"),  # type: ignore[arg-type]
    lambda a, c, p: a.consumer_group_lag(5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("mistake", WRONG)
async def test_what_type_checkers_see_the_clients_say(mistake: Callable[..., Any]) -> None:
    """At once: nobody listens there."""
    async with (
        Admin(NOBODY) as admin,
        Consumer(NOBODY, group_id="g") as consumer,
        Producer(NOBODY) as producer,
    ):
        with trio.fail_after(5), pytest.raises((TypeError, ValueError)):
            found = mistake(admin, consumer, producer)
            if inspect.isawaitable(found):
                await found


def test_pyright_sees_the_mistakes_and_nothing_else(tmp_path: Path) -> None:
    lines = Path(__file__).read_text().splitlines()
    wanted = {
        number
        for number, line in enumerate(lines, 1)
        if line.startswith("    lambda") and MARK in line
    }
    assert len(wanted) == len(WRONG)
    found = {
        error["range"]["start"]["line"] + 1: error["message"]
        for error in errors_of_pyright(Path(__file__), tmp_path)
        if error["rule"] != "reportAssignmentType"  # the list itself, for what is within it
    }
    assert not wanted - found.keys(), [lines[number - 1] for number in wanted - found.keys()]
    assert found.keys() == wanted, [found[number] for number in found.keys() - wanted]


def errors_of_pyright(program: Path, folder: Path) -> list[dict[str, Any]]:
    """Return what pyright, as it comes, finds wrong in a program of a user's."""
    settings = folder / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [str(program)],
                "extraPaths": [str(ROOT)],
                "typeCheckingMode": "standard",
                "enableTypeIgnoreComments": False,
            }
        )
    )
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(settings)]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    return found
