"""Ctrl-C ends a program that uses our clients, in a few lines, whatever they are doing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.java_tools import KafkaTools

pytestmark = scenarios.MARKS

DEADLINE_S = 30
FEW_LINES = 24  # about ten, unless the interrupt comes while a connection is being set up

PRODUCING = """
    async with Producer(address, linger_ms=1) as producer:
        while True:
            await producer.send(topic, b"x" * 100)
            tell()
"""
CONSUMING = """
    async with Producer(address) as producer:
        await producer.send_values(topic, [b"x" * 100] * 50_000)
    async with Consumer(address, group_id=topic, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(topic)
        async for record in consumer:
            tell()
"""
WAITING = """
    async with Consumer(address, group_id=topic) as consumer:
        await consumer.subscribe(topic)
        tell()
        await consumer.poll()
"""
PROGRAM = """
import sys
import trio
from kraftrio import Consumer, Producer

address, topic = sys.argv[1:]
told = 0

def tell():
    global told
    told += 1
    if told == 1:
        print("at it", flush=True)

async def main():
{body}
trio.run(main)
"""


@pytest.mark.parametrize("body", [PRODUCING, CONSUMING, WAITING])
def test_an_interrupt_ends_a_program(
    bootstrap: str, kafka: KafkaTools, unique_topic: Callable[[], str], body: str
) -> None:
    """One traceback of KeyboardInterrupt alone, that ends where the program was."""
    topic = kafka.create_topic(unique_topic())
    command = [sys.executable, "-c", PROGRAM.format(body=body), bootstrap, topic]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "at it\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    lines = errors.splitlines()
    assert lines[-1] == "KeyboardInterrupt", errors
    assert "Group" not in errors
    assert len(lines) <= FEW_LINES, errors
