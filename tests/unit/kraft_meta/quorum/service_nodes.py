"""A quorum service on a disk in memory, in virtual time, and what tests do with it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from kraftrio.base.clock import Clock
from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.kraft_meta.controller.control import ControllerConfig, registered_features
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.kraft_meta.quorum.settings import QuorumConfig, QuorumPorts
from kraftrio.kraft_meta.raft.messages import (
    Message,
)
from kraftrio.kraft_meta.raft.values import SnapshotId
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.wire.messages.admin import CreateTopicsRequest
from kraftrio.wire.messages.quorum import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)
from tests.support.memory_files import MemoryFileSystem
from tests.unit.kraft_meta.controller.context import FakeConfigs, topic

DIRECTORY = "/data/__cluster_metadata-0"
CLUSTER_ID = "cluster"


class VirtualClock(Clock):
    """Wall time that starts somewhere, and Trio's clock."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic_ms())


def new_disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    fs.sync_directory("/")
    return fs


class Node:
    """A service on a disk; `hold` keeps the disk busy until the test lets go."""

    def __init__(self, fs: MemoryFileSystem, *, cluster_id: str = CLUSTER_ID, **options: Any):
        self.fs = fs
        self.deltas: list[MetadataDelta] = []
        self.hold: trio.Event | None = None
        self.flushes = 0
        self.sent: list[Any] = []
        self.wanted: list[tuple[int, SnapshotId]] = []
        voters = options.pop("voters", (1,))
        configs = FakeConfigs()
        self.log = MetadataLog(fs, DIRECTORY)
        self.service = QuorumService(
            QuorumConfig(node_id=1, voters=VoterSet.of_ids(voters), **options),
            ControllerConfig(cluster_id=cluster_id, node_id=1),
            QuorumPorts(
                log=self.log,
                election_store=QuorumStateFile(fs, DIRECTORY),
                validator=configs,
                topic_configs=configs,
                clock=VirtualClock(),
                rng=random.Random(len(fs.files)),
                peers=self,
                run_in_thread=self._run_in_thread,
            ),
        )
        self.service.subscribe(self._on_delta)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def fetch_snapshot(self, source: int, snapshot_id: SnapshotId) -> None:
        self.wanted.append((source, snapshot_id))

    def _on_delta(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert image is self.service.image
        self.deltas.append(delta)

    async def _run_in_thread(self, work: Callable[[], object]) -> None:
        await trio.lowlevel.checkpoint()
        if self.hold is not None:
            await self.hold.wait()
        work()
        self.flushes += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.service.run)
            yield self
            nursery.cancel_scope.cancel()

    async def ask(self, request: Any, api_version: int = 7) -> Any:
        return await self.service.submit(request, api_version=api_version).wait()

    async def create(self, *names: str) -> None:
        response = await self.ask(create_request(*names))
        assert [t.error_code for t in response.topics] == [0] * len(names)

    async def join(self) -> int:
        """Register and unfence broker 1; return its epoch."""
        response = await self.ask(
            BrokerRegistrationRequest(
                broker_id=1,
                cluster_id=CLUSTER_ID,
                incarnation_id=random.randbytes(16),
                features=registered_features(),
            )
        )
        assert response.error_code == 0
        heartbeat = await self.beat(response.broker_epoch)
        assert not heartbeat.is_fenced
        return int(response.broker_epoch)

    async def beat(self, broker_epoch: int) -> Any:
        return await self.ask(
            BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=broker_epoch,
                current_metadata_offset=self.service.image.offset,
            )
        )


def create_request(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[topic(name, 1, 1) for name in names])


def note(order: list[str], name: str, _response: Any) -> None:
    """Remember who was answered."""
    order.append(name)


def virtually(test: Callable[[], Any]) -> None:
    """Run an async test in virtual time."""
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


def plain(image: MetadataImage) -> MetadataImage:
    """Give an image without its position in the log."""
    delta = MetadataDelta(MetadataImage())
    for record in image.to_records():
        delta.replay(record)
    return delta.apply(0, 0)
