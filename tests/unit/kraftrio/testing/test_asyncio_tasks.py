"""Which tasks of asyncio are a test's, and left; a client is known by the tasks it has."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import pytest

from kraftrio.testing.asyncio_tasks import watched_tasks


def test_tasks_of_this_test_are_named() -> None:
    """Not those from before, nor those that are being cancelled, nor what asyncio.run has ended."""
    with asyncio.Runner() as runner:
        kept: list[asyncio.Task[None]] = []

        async def start(name: str) -> None:
            kept.append(asyncio.create_task(asyncio.sleep(3600), name=name))

        runner.run(start("before"))
        with watched_tasks() as left:
            assert left() == []
            runner.run(start("cancelled"))
            kept[-1].cancel()
            runner.run(start("Task-of-a-library"))
            runner.run(start("mine"))
            asyncio.run(start("ended"))
            assert left() == ["task mine (sleep)"]
        assert asyncio.BaseEventLoop.run_forever.__name__ == "run_forever"


_CLIENT = """
import asyncio

class Client:
    async def keep(self):
        await asyncio.sleep(3600)

class Fetcher:
    def __init__(self, client):
        self._client = client

    async def fetch(self):
        await asyncio.sleep(3600)
"""


def test_clients_of_aiokafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """One from before may start tasks meanwhile; a new one is named once, by what it is."""
    module = ModuleType("aiokafka.consumer.fetcher")
    exec(_CLIENT, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with asyncio.Runner() as runner:
        kept: list[asyncio.Task[None]] = []
        old, new = module.Client(), module.Client()

        async def start(client: object) -> None:
            kept.append(asyncio.create_task(client.keep()))  # type: ignore[attr-defined]

        async def fetch(client: object) -> None:
            kept.append(asyncio.create_task(module.Fetcher(client).fetch()))

        runner.run(start(old))
        with watched_tasks() as left:
            runner.run(fetch(old))
            assert left() == []
            runner.run(start(new))
            runner.run(fetch(new))
            assert left() == ["AIOKafkaConsumer, not stopped"]
