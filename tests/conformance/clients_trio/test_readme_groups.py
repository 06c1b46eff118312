"""The README's programs for the new kinds of group, run as they stand there."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from kraftrio import Admin, NewTopic, Producer
from kraftrio.clients.admin.types import AlterConfigOp, ConfigResource, ConfigResourceType
from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios

pytestmark = scenarios.MARKS

README = Path(__file__).resolve().parents[3] / "README.md"
DEADLINE_S = 60.0


def program(heading: str, number: int, address: str) -> str:
    """Return a program below a heading, pointed at a broker."""
    section = README.read_text().partition(f"### {heading}\n")[2].partition("\n### ")[0]
    code: str = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]
    assert len(code.partition("async def main")[2].strip().splitlines()) <= 15, "short enough"
    return code.replace("localhost:9092", address)


@asynccontextmanager
async def running(code: str) -> AsyncIterator[AsyncIterator[str]]:
    """Run a program, whose lines the body reads; end it as Ctrl-C would."""
    command = [sys.executable, "-c", code]
    with trio.fail_after(DEADLINE_S):
        process = await trio.lowlevel.open_process(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            yield lines(process)
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            assert process.stdout is not None
            await process.stdout.aclose()


async def lines(process: trio.Process) -> AsyncIterator[str]:
    assert process.stdout is not None
    rest = b""
    async for chunk in process.stdout:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode()


async def send(address: str, topic: str, *values: bytes | None) -> None:
    async with Producer(address) as producer:
        for value in values:
            await producer.send(topic, value)


async def test_a_group_of_the_consumer_protocol(consumer_groups: Broker) -> None:
    """It reads what matches the pattern, and prints where it is."""
    await send(consumer_groups.address, "greetings", b"hello", b"hi")
    async with running(
        program("Groups whose partitions the broker assigns", 0, consumer_groups.address)
    ) as printed:
        assert [await anext(printed) for _ in range(2)] == [
            "greetings 0 b'hello'",
            "greetings 1 b'hi'",
        ]


async def test_a_share_group_and_its_administration(share_groups: Broker) -> None:
    """It works on jobs, and rejects what is none; then the administrator sees nothing left."""
    address = share_groups.address
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic("jobs", 1, 1)])
        group = ConfigResource(ConfigResourceType.GROUP, "workers")
        change = AlterConfigOp("share.auto.offset.reset", "earliest")
        await admin.incremental_alter_configs({group: [change]})
        await send(address, "jobs", b"dig", None, b"sow")
        async with running(program("Share groups", 0, address)) as printed:
            assert [await anext(printed) for _ in range(2)] == ["b'dig' 1", "b'sow' 1"]
            while (await lag(admin)) != 0:  # noqa: ASYNC110
                await trio.sleep(0.05)
        async with running(program("Share groups", 1, address)) as printed:
            lines = [line async for line in printed]
    assert "workers share Empty" in lines and "jobs 0 0" in lines


async def lag(admin: Admin) -> int | None:
    [found] = (await admin.share_groups.list_offsets("workers")).values()
    return None if found is None else found.lag
