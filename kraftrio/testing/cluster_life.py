"""One cluster of a test from its start to its end: its nodes, its loop, and the way to them.

Owns `ClusterLife`, and what runs meanwhile, `Running`. Only the thread of the loop touches what
runs; `ClusterLife` may be called from any other thread, and waits for what it asks for there.

Called by: `cluster`, and `plugin`, which asks whether a cluster can be lent to another test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import trio

from kraftrio.testing.contents import Contents, CurrentContents
from kraftrio.testing.explaining.evidence import Evidence
from kraftrio.testing.explaining.exchanges import Exchanges
from kraftrio.testing.explaining.gathering import of_nodes
from kraftrio.testing.faults.requests import RequestFaults
from kraftrio.testing.local_nodes import LocalNodes, NodesSpec
from kraftrio.testing.loop_thread import Call, LoopThread, shared_loop
from kraftrio.testing.node_process import NodeProcess
from kraftrio.testing.snapshots.snapshot import Snapshot
from kraftrio.testing.story import aligned
from kraftrio.testing.subjects import LookAt
from kraftrio.testing.waiting import LAST_EVENTS, Seen, Wait

T = TypeVar("T")
_KEPT_BYTES = 16 << 20  # of requests and answers
_REQUEST_TIMEOUT_MS = 5_000  # of what a test asks for itself, also of a paused node


class Running:
    """The parts of a running cluster; its methods are called in the loop's thread."""

    def __init__(self, nodes: LocalNodes | NodeProcess, nursery: trio.Nursery) -> None:
        self.nodes = nodes
        self.nursery = nursery
        self.requests: RequestFaults | None = None
        self.exchanges: Exchanges | None = None
        self._current = CurrentContents()
        self._opening = trio.Lock()

    async def contents(self) -> Contents:
        """What is in it; the clients for that are opened when they are first wanted."""
        async with self._opening:
            contents = self._current.contents
            if contents is None:
                contents = Contents(
                    self.nodes.bootstrap_servers, request_timeout_ms=_REQUEST_TIMEOUT_MS
                )
                await self.nursery.start(contents.run)
                self._current.contents = contents
        return contents

    async def restore(self, nodes: LocalNodes, snapshot: Snapshot) -> None:
        """Let the nodes be as they were then; clients for looking at them are opened again."""
        async with self._opening:
            self._current.replace(None)
            if self.exchanges is not None:
                self.exchanges.has_past = True
            await nodes.restore(snapshot, self.nursery)

    async def look(self, look: LookAt) -> Seen:
        """Look once at what is waited for."""
        return await look(await self.contents())

    def evidence(self, nodes: LocalNodes) -> Evidence:
        """What is known of the run."""
        assert self.exchanges is not None
        by_id = {node_id: each.node for node_id, each in nodes.by_id.items()}
        return of_nodes(by_id, nodes.trace, self.exchanges)

    def last_events(self, nodes: LocalNodes) -> str:
        """What has happened lately."""
        return aligned(self.evidence(nodes).events[-LAST_EVENTS:])

    def forget(self, nodes: LocalNodes) -> None:
        """Begin the story again."""
        assert self.exchanges is not None
        self.exchanges.forget()
        nodes.trace.forget()


class ClusterLife:
    """A cluster that is started, called, and stopped.

    Args:
        in_process: whether its nodes are to be in this process, or in one of their own.
    """

    def __init__(self, spec: NodesSpec, *, in_process: bool) -> None:
        self._spec = spec
        self._in_process = in_process
        self._stack = ExitStack()
        self._loop: LoopThread | None = None
        self._run: Call[None] | None = None
        self._running: Running | None = None

    def start(self) -> None:
        """Start every node, and wait until clients can connect.

        Raises:
            ValueError: no node can start with its properties, or its folder has something in it
                where the cluster is to begin with a snapshot.
            RuntimeError: it runs already, or a node could not start; the text says why.
        """
        if self._loop is not None:
            raise RuntimeError("this cluster runs already: start it once, or make another one")
        nodes = LocalNodes(self._spec) if self._in_process else NodeProcess(self._spec)
        self._stack.callback(nodes.close)
        loop = self._loop = self._stack.enter_context(shared_loop())
        started: Future[Running] = Future()
        self._run = loop.call(lambda: _live(nodes, started))
        try:
            self._running = started.result()
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """End every node at once; what was in memory is gone. Nothing happens if none runs.

        Raises:
            RuntimeError: a node had ended by itself; the text says why.
        """
        failures = self.failures
        self._end()
        if failures:
            raise RuntimeError("; ".join(failures))

    def _end(self) -> None:
        run, self._run, self._running, self._loop = self._run, None, None, None
        with self._stack.pop_all():
            if run is not None:
                run.cancel()
                run.wait()

    @property
    def failures(self) -> list[str]:
        """Why nodes ended by themselves, if any did."""
        return [] if self._running is None else self._running.nodes.failures()

    @property
    def is_whole(self) -> bool:
        """Whether every node runs, and nothing that a test has done to them lasts."""
        running = self._running
        if running is None or not all(running.nodes.up().values()):
            return False
        is_awaited = running.requests is not None and running.requests.is_awaited
        return not is_awaited and not running.nodes.is_disturbed

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin.

        Raises:
            RuntimeError: the cluster has no address yet.
        """
        if self._running is None:
            raise RuntimeError(
                "this cluster has no address yet: use it within `with`, or after start()"
            )
        return self._running.nodes.bootstrap_servers

    def started(self) -> tuple[Running, LoopThread]:
        """What runs, and the loop in whose thread it does.

        Raises:
            RuntimeError: nothing does.
        """
        if self._running is None or self._loop is None:
            raise RuntimeError(
                "this cluster does not run: use it within `with`, or between start() and stop()"
            )
        return self._running, self._loop

    def here(self, what: str) -> tuple[LocalNodes, Running, LoopThread]:
        """The nodes, which have to be in this process, and what `started` returns.

        Args:
            what: what nodes in a process of their own are like, for the error's text.

        Raises:
            ValueError: they are in another process.
            RuntimeError: the cluster does not run.
        """
        running, loop = self.started()
        if not isinstance(running.nodes, LocalNodes):
            raise ValueError(
                f"nodes in a process of their own {what}: make the cluster with in_process=True"
            )
        return running.nodes, running, loop

    def call(self, work: Callable[[Contents], Awaitable[T]]) -> T:
        """Do something with the contents of the cluster, and wait for it."""
        running, loop = self.started()

        async def call() -> T:
            return await work(await running.contents())

        return loop.call(call).result()

    def watch(self, what: str, look: LookAt, timeout_s: float) -> Wait:
        """Make a `Wait` for something in the cluster."""
        running, loop = self.started()
        last_events = None
        if isinstance(nodes := running.nodes, LocalNodes):
            last_events = partial(running.last_events, nodes)
        return Wait(what, lambda: running.look(look), timeout_s, loop, last_events)

    @property
    def has_story(self) -> bool:
        """Whether what happens is written down: nodes in another process have no story."""
        return self._running is not None and isinstance(self._running.nodes, LocalNodes)

    def begin_story(self) -> None:
        """Forget what has happened so far, as at the beginning of a test."""
        nodes, running, loop = self.here("have no story")
        loop.do(lambda: running.forget(nodes))


async def _live(nodes: LocalNodes | NodeProcess, started: Future[Running]) -> None:
    """Run the nodes of a cluster until this is cancelled, or they could not start."""
    try:
        async with trio.open_nursery() as nursery:
            running = Running(nodes, nursery)
            if isinstance(nodes, LocalNodes):
                running.requests = RequestFaults(nodes.traffic)
                running.exchanges = Exchanges(nodes.traffic, _KEPT_BYTES)
                running.exchanges.has_past = nodes.has_past
                nodes.on_made = running.requests.stand_before
            try:
                await nodes.start(nursery)
            except Exception as error:
                started.set_exception(error)
                return
            started.set_result(running)
            try:
                await trio.sleep_forever()
            finally:
                nodes.resume()  # a paused node cannot end
    finally:
        with trio.CancelScope(shield=True):
            await nodes.kill()
        if not started.done():
            started.cancel()
