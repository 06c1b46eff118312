"""Tasks of asyncio that a test leaves, and clients of aiokafka by the tasks they have.

Owns: `watched_tasks`. Rules:
1. Looked at are the loops that have run in the test and are open when it ends, as those of plugins
   are that run async tests; `asyncio.run` has ended its tasks itself.
2. What was there before the loop ran is not the test's, nor are tasks that such an object starts
   later, nor those of plugins of pytest, nor nameless ones that only wait for something of
   asyncio's, as libraries start them; who is being cancelled is as good as ended.

Called by: `plugin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

_Task = asyncio.Task[Any]
_OF_PLUGINS = ("anyio.", "pytest_asyncio.", "_pytest.")
_AIOKAFKA = {"aiokafka.consumer.": "AIOKafkaConsumer", "aiokafka.producer.": "AIOKafkaProducer"}


@contextmanager
def watched_tasks() -> Iterator[Callable[[], list[str]]]:
    """Watch a test; the yielded function names what is left when the body ends."""
    before: dict[asyncio.AbstractEventLoop, set[_Task]] = {}
    run_forever = asyncio.BaseEventLoop.run_forever

    def watched(loop: asyncio.BaseEventLoop) -> None:
        if loop not in before:
            before[loop] = asyncio.all_tasks(loop)
        run_forever(loop)

    def left() -> list[str]:
        return [
            name
            for loop, tasks in before.items()
            if not loop.is_closed()
            for name in _names(asyncio.all_tasks(loop) - tasks, tasks)
        ]

    with mock.patch.object(asyncio.BaseEventLoop, "run_forever", watched):
        yield left


def _names(tasks: Iterable[_Task], before: Iterable[_Task]) -> list[str]:
    known = {id(_owner(task)) for task in before if _owner(task) is not None}
    clients: dict[int, str] = {}
    others = []
    for task in sorted(tasks, key=lambda task: task.get_name()):
        owner = _owner(task)
        if task.cancelling() or id(owner) in known or _is_part_of_others(task):
            continue
        if not _module(task).startswith("aiokafka."):
            others.append(
                f"task {task.get_name()} ({getattr(task.get_coro(), '__qualname__', '')})"
            )
        elif owner is not None:
            kind = next(
                (k for start, k in _AIOKAFKA.items() if _module(task).startswith(start)), ""
            )
            clients[id(owner)] = kind or clients.get(id(owner), "") or "AIOKafkaClient"
    return [*(f"{kind}, not stopped" for kind in clients.values()), *others]


def _is_part_of_others(task: _Task) -> bool:
    """Whether the task is a plugin's, or only waits (`asyncio.wait`) for an unknown owner."""
    module = _module(task)
    is_nameless = task.get_name().startswith("Task-")
    return module.startswith(_OF_PLUGINS) or (module.startswith("asyncio.") and is_nameless)


def _frame_of(task: _Task) -> Any:
    return getattr(task.get_coro(), "cr_frame", None)


def _module(task: _Task) -> str:
    frame = _frame_of(task)
    return "" if frame is None else f"{frame.f_globals.get('__name__', '')}."


def _owner(task: _Task) -> object | None:
    """The object whose method the task runs; parts of a client of aiokafka are its connection."""
    frame = _frame_of(task)
    found = None if frame is None else frame.f_locals.get("self")
    return getattr(found, "_client", found)
