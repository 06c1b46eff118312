"""The nodes of a cluster for tests in this process, with real sockets, on disks in memory or files.

Owns: `LocalNode`, `LocalNodes`, `NodeClock` and `Ports`. Rules:
1. A node is a `broker.node.Node` as the command line runs it; only its environment is another one.
2. A node keeps its ports from one start to the next. They are listened on before any node starts,
   so that the nodes can be told each other's.
3. On a disk in memory nothing waits, so what runs in threads elsewhere runs on the loop.
4. A node that ends by itself leaves `failure`; it does not end the others.

Called by: `cluster`.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from kraftrio.base.clock import Clock, wall_ms
from kraftrio.base.exception_groups import innermost
from kraftrio.base.threads import RunInThread, run_in_worker_thread
from kraftrio.broker.config.config import BrokerConfig, PropertyError
from kraftrio.broker.log.files import FileSystem, OsFileSystem
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.node import Node
from kraftrio.net.transport import ACCEPT_BACKLOG, SystemNetwork
from kraftrio.testing.node_settings import node_settings
from kraftrio.testing.node_trace import NodeLife, NodeTrace, log_of_nodes
from kraftrio.testing.simulation.disk import SimDisk
from kraftrio.testing.simulation.disk_image import DiskImage
from kraftrio.testing.simulation.incarnation import current
from kraftrio.testing.simulation.run_queue import pause, resume
from kraftrio.testing.snapshots.errors import SnapshotError
from kraftrio.testing.snapshots.folders import check_one_directory, image_of, lay
from kraftrio.testing.snapshots.snapshot import Snapshot
from kraftrio.testing.traffic.tapped import NodeNetwork, SocketTraffic

HOST = "127.0.0.1"
_IN_MEMORY = "/data"


@dataclass(frozen=True, slots=True)
class NodesSpec:
    """Which nodes there are.

    Attributes:
        config: properties of every node, by Kafka's names.
        folder: where their files go, each in a folder of its own; None: disks in memory.
        start: what they begin with; None: empty disks, or what is in the folders.
    """

    node_count: int
    config: Mapping[str, str]
    folder: str | None = None
    start: Snapshot | None = None


class Ports(SystemNetwork):
    """The system's network, with listening sockets that are there before they are asked for."""

    def __init__(self) -> None:
        self._held: dict[int, socket.socket] = {}

    def hold(self) -> int:
        """Listen on a free port; connections wait there until a node takes the port."""
        sock = super().bind(HOST, 0)
        port: int = sock.getsockname()[1]
        self._held[port] = sock
        return port

    def bind(
        self, host: str, port: int, *, backlog: int = ACCEPT_BACKLOG, ipv6_only: bool = False
    ) -> socket.socket:
        """Hand over the socket that is held, or open one."""
        held = self._held.pop(port, None)
        return held or super().bind(host, port, backlog=backlog, ipv6_only=ipv6_only)

    def close(self) -> None:
        """Close what was not asked for."""
        while self._held:
            _, sock = self._held.popitem()
            sock.close()


class NodeClock(Clock):
    """A node's clocks: the machine's, but for what its wall clock was moved by."""

    __slots__ = ("offset_ms",)

    def __init__(self) -> None:
        self.offset_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.offset_ms


class LocalNode:
    """One node, and what it keeps from one start to the next.

    Args:
        name: such as "n1".
        on_made: called with the node of each life, before it runs.

    Attributes:
        address: where clients find it, HOST:PORT.
        failure: why it ended by itself; "" while it has not.
        may_end: something was done to its disk, so that it is no fault of its own if it ends.
        node: what runs; None while nothing does.
        disk: in memory; None: it has a folder.
    """

    def __init__(
        self,
        config: BrokerConfig,
        name: str,
        network: NodeNetwork,
        trace: NodeTrace,
        *,
        in_memory: bool,
        on_made: Callable[[Node], object],
    ) -> None:
        self.config = config
        self.name = name
        self._trace = trace
        self.address = f"{HOST}:{config.listeners[0].port}"
        self.failure = ""
        self.may_end = False
        self.node: Node | None = None
        self.clock = NodeClock()
        self._network = network
        self.disk = SimDisk(self.clock.wall_ms) if in_memory else None
        self._on_made = on_made
        self._lives = itertools.count(1)
        self._life = NodeLife(name, 0, trace)
        self._scope = trio.CancelScope()
        self._stopping = trio.Event()
        self._ended = trio.Event()
        self._ended.set()

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    @property
    def is_paused(self) -> bool:
        return self._life.is_paused

    async def start(self, nursery: trio.Nursery) -> None:
        """Start it, and wait until clients can connect.

        Raises:
            RuntimeError: it has ended instead; the text says why.
        """
        self.failure = ""
        self._scope, self._stopping = trio.CancelScope(), trio.Event()
        self._ended = trio.Event()
        ready = trio.Event()
        self.note("start")
        nursery.start_soon(self._live, ready)
        await ready.wait()
        if self.failure:
            raise RuntimeError(self.failure)
        self.may_end = self.disk is not None and self.disk.is_limited
        self.note("ready")

    def note(self, kind: str, text: str = "") -> None:
        """Write a line of the trace."""
        self._trace.add(self.name, kind, text)

    async def _live(self, ready: trio.Event) -> None:
        self._life = NodeLife(self.name, next(self._lives), self._trace)
        current.set(self._life)  # for all tasks of this one
        fs: FileSystem = self.disk or OsFileSystem()
        run_in_thread: RunInThread = run_in_worker_thread if self.disk is None else _run_here
        environment = Environment(
            fs=fs, clock=self.clock, network=self._network, run_in_thread=run_in_thread
        )
        name = f"node {self.config.node_id}"
        try:
            with self._scope:
                self.node = Node(self.config, environment, lambda _line: ready.set())
                self._on_made(self.node)
                await self.node.run_until(self._stopping)
                if not self._stopping.is_set():
                    self.failure = f"{name} ended by itself"
        except* Exception as group:
            error = innermost(group)
            self.failure = f"{name} ended: {type(error).__name__}: {error}"
        finally:
            if self.failure:
                self.note("end", self.failure)
            self.node = None
            self._life.is_alive = False
            ready.set()
            self._ended.set()

    async def stop(self) -> None:
        """Stop it gracefully."""
        self.note("term")
        self._stopping.set()
        await self._ended.wait()

    def image(self, copies: Path) -> DiskImage:
        """What is on its disk now. A folder is copied, and nobody may write to it meanwhile.

        Args:
            copies: where copies of files go, if need be.
        """
        if self.disk is not None:
            return self.disk.image()
        return image_of(self._folder(), copies)

    def check_takes(self, image: DiskImage) -> None:
        """Raise SnapshotError if its files are not in one folder, or the image is not of one."""
        if self.disk is None:
            self._folder()
            check_one_directory(image)

    def load(self, image: DiskImage) -> None:
        """Replace all that is on its disk, while it does not run; `check_takes` comes first."""
        if self.disk is not None:
            self.disk = SimDisk.of(image, self.clock.wall_ms)
        else:
            lay(image, self._folder())

    def check_empty(self) -> None:
        """Raise SnapshotError if there is something on its disk already."""
        if self.disk is None and self._folder().is_dir() and os.listdir(self._folder()):
            raise SnapshotError(
                f"{self._folder()} is not empty: a cluster that begins with a snapshot needs a"
                " folder of its own"
            )

    def _folder(self) -> Path:
        directories = {*self.config.log_dirs, self.config.metadata_log_dir}
        if len(directories) > 1:
            raise SnapshotError(
                f"node {self.config.node_id} has several log directories,"
                f" {', '.join(sorted(directories))}: snapshots need one, or disks in memory"
            )
        return Path(directories.pop())

    async def kill(self) -> None:
        """End it as `kill -9` does: what it has written is there, and nobody is told."""
        if self.is_running:
            self.note("crash", "kill -9")
        if self.disk is not None:
            self.disk = self.disk.after_kill()
        await self._end()

    async def cut_power(self) -> None:
        """End it, and keep only a part of what was not synced to its disk in memory."""
        assert self.disk is not None
        self.note("crash", "power cut")
        self.disk = self.disk.after_power_cut(random.Random())
        await self._end()

    async def _end(self) -> None:
        self._life.is_alive = False  # what it logs of its end it would not have logged
        self._scope.cancel()
        if self.is_paused:
            resume(self._life)  # to end
        await self._ended.wait()

    def pause(self) -> None:
        """Pause it, as SIGSTOP does a process; its sockets stay open."""
        self.note("pause")
        pause(self._life)

    def resume(self) -> None:
        """Let it go on."""
        self.note("resume")
        resume(self._life)


def _name_of(node_id: int) -> str:
    """The name of a node's machine, as in a world in virtual time."""
    return f"n{node_id}"


async def _run_here(work: Callable[[], object]) -> None:
    await trio.lowlevel.checkpoint()
    work()


class LocalNodes:
    """All nodes of one cluster.

    Attributes:
        has_past: they may begin with something.

    Raises:
        ValueError: no node can start with the settings; the text says why.
    """

    def __init__(self, spec: NodesSpec) -> None:
        self._ports = Ports()
        self.trace = NodeTrace()
        names = [_name_of(node_id) for node_id in range(1, spec.node_count + 1)]
        self.traffic = SocketTraffic(names, self.trace.now_s, self.trace.add)
        self.on_made: Callable[[Node], object] = lambda _node: None  # before it runs
        log_of_nodes.begin()
        self._parent = spec.folder
        self.has_past = spec.start is not None or spec.folder is not None
        self._copies: list[str] = []
        try:
            self.by_id = dict(self._prepared(spec))
            if spec.start is not None:
                self._check_takes(spec.start)
                for node in self.by_id.values():
                    node.check_empty()
                self._load(spec.start)
        except PropertyError as error:
            self.close()
            raise ValueError(f"config: {error}") from error
        except SnapshotError:
            self.close()
            raise

    def _prepared(self, spec: NodesSpec) -> Iterator[tuple[int, LocalNode]]:
        ids = range(1, spec.node_count + 1)
        voters = {node_id: self._ports.hold() for node_id in ids}
        quorum = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in voters.items())
        for node_id, port in voters.items():
            client_port = self._ports.hold()
            folder = _IN_MEMORY if spec.folder is None else f"{spec.folder}/node-{node_id}"
            config = BrokerConfig(
                {
                    "node.id": str(node_id),
                    "process.roles": "broker,controller",
                    "listeners": f"PLAINTEXT://{HOST}:{client_port},CONTROLLER://{HOST}:{port}",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": quorum,
                    "log.dirs": folder,
                    **node_settings(spec.node_count),
                    **spec.config,
                }
            )
            name = _name_of(node_id)
            node = LocalNode(
                config,
                name,
                NodeNetwork(self._ports, self.traffic, name),
                self.trace,
                in_memory=spec.folder is None,
                on_made=lambda node: self.on_made(node),
            )
            yield node_id, node

    async def start(self, nursery: trio.Nursery) -> None:
        """Start all of them."""
        self.traffic.nursery = nursery
        await _start(self.by_id.values(), nursery)

    def resume(self) -> None:
        """Let all paused nodes go on."""
        for node in self.by_id.values():
            if node.is_paused:
                node.resume()

    async def kill(self) -> None:
        """End all of them at once."""
        async with trio.open_nursery() as ending:
            for node in self.by_id.values():
                ending.start_soon(node.kill)

    async def snapshot(self, nursery: trio.Nursery) -> Snapshot:
        """Take what is on all disks. With folders, nodes that run are killed and started again."""
        now_ms = wall_ms()
        if self._parent is None:
            return Snapshot(self._images(""), now_ms)
        copies = tempfile.mkdtemp(prefix=".snapshot-", dir=self._parent)
        self._copies.append(copies)
        running = [node for node in self.by_id.values() if node.is_running]
        await self.kill()
        try:
            disks = await trio.to_thread.run_sync(self._images, copies)
        finally:
            await _start(running, nursery)
        return Snapshot(disks, now_ms)

    def _images(self, copies: str) -> dict[int, DiskImage]:
        return {
            node_id: node.image(Path(copies, f"node-{node_id}"))
            for node_id, node in self.by_id.items()
        }

    async def restore(self, snapshot: Snapshot, nursery: trio.Nursery) -> None:
        """Kill all of them, give them their disks from the snapshot, and start them."""
        self._check_takes(snapshot)
        await self.kill()
        await trio.to_thread.run_sync(self._load, snapshot)
        await self.start(nursery)

    def _check_takes(self, snapshot: Snapshot) -> None:
        snapshot.check_fits(len(self.by_id))
        for node_id, image in snapshot.disks.items():
            self.by_id[node_id].check_takes(image)

    def _load(self, snapshot: Snapshot) -> None:
        for node_id, image in snapshot.disks.items():
            self.by_id[node_id].load(image)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin."""
        return ",".join(node.address for node in self.by_id.values())

    def up(self) -> dict[int, bool]:
        """Which nodes run."""
        return {node_id: node.is_running for node_id, node in self.by_id.items()}

    def failures(self) -> list[str]:
        """Why nodes ended by themselves, if any did."""
        return [node.failure for node in self.by_id.values() if node.failure and not node.may_end]

    @property
    def is_disturbed(self) -> bool:
        """Whether a fault lasts: of a link, a paused node, a disk, a clock."""
        return bool(self.traffic.cuts) or any(
            node.is_paused or node.clock.offset_ms or (node.disk and node.disk.is_limited)
            for node in self.by_id.values()
        )

    def close(self) -> None:
        """Close the ports that no node has asked for, and remove the copies of snapshots."""
        log_of_nodes.end()
        self._ports.close()
        for copies in self._copies:
            shutil.rmtree(copies)


async def _start(nodes: Iterable[LocalNode], nursery: trio.Nursery) -> None:
    """Start all of them at once.

    Raises:
        RuntimeError: one or more have ended instead; the text says why.
    """
    try:
        async with trio.open_nursery() as starting:
            for node in nodes:
                starting.start_soon(node.start, nursery)
    except ExceptionGroup as group:
        ended, others = group.split(RuntimeError)
        if ended is None or others is not None:
            raise
        raise RuntimeError("; ".join(map(str, ended.exceptions))) from None
