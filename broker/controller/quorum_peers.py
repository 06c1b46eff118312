"""The way to the other nodes of the metadata quorum: the quorum's port `Peers` over connections.

Owns: the lanes to the voters. Rules:
1. Nothing blocks and nothing is kept for later: a message is sent when its connection is there or
   can be made at once, else it is lost and reported to `PeerMessages.peer_unreachable`; the
   consensus core retries when it wants to.
2. A voter is reached by two lanes: one for fetches, which the leader may keep waiting, and one for
   everything else, which must not wait behind them.
3. The lanes follow the set of voters.

Called by: the quorum service (`send`, `fetch_snapshot`), node.py (`attach`, `run`). Protocol:
KIP-595, KIP-630.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from kraftrio.base.backoff import NO_BACKOFF, ExponentialBackoff
from kraftrio.base.owned_tasks import OwnedTasks
from kraftrio.broker.controller.other_clusters import OtherClusters
from kraftrio.broker.controller.snapshot_download import SnapshotDownloads
from kraftrio.broker.controller.voter_lane import VoterLane
from kraftrio.kraft_meta.quorum.raft_wire import encode_request
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.kraft_meta.raft.messages import Fetch, Message, Request, Response
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.values import SnapshotId
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.net.connection import Connection, ConnectionLost, open_connection
from kraftrio.net.link import Link, LinkSettings
from kraftrio.net.transport import Network
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError

_log = logging.getLogger("kraftrio.metadata")


class QuorumPeers:
    """Sends for one node; `attach` before `run`."""

    def __init__(
        self, network: Network, node_id: int, directory_id: bytes, config: RaftConfig
    ) -> None:
        self._network = network
        self._node_id = node_id
        self._directory_id = directory_id
        self._config = config
        self._client_id = f"raft-client-{node_id}"
        self._service: QuorumService | None = None
        self._downloads: SnapshotDownloads | None = None
        self._other_clusters: OtherClusters | None = None
        self._addresses: dict[int, tuple[str, int]] = {}  # of the other voters
        self._fetches: dict[int, VoterLane] = {}
        self._elections: dict[int, VoterLane] = {}
        self._silent: dict[int, str] = {}  # voters that cannot be reached, and why
        self._tasks = OwnedTasks()

    def attach(self, service: QuorumService) -> None:
        """Name the service that takes the answers and knows the voters."""
        self._service = service
        timeout_s = self._config.request_timeout_ms / 1000
        self._downloads = SnapshotDownloads(service, self._connect, self._tasks, self._config)
        self._other_clusters = OtherClusters(service, self._connect, self._tasks, timeout_s)
        service.voters.subscribe(self._on_voters)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the connections until cancelled."""
        async with self._tasks.open():
            for lane in (*self._fetches.values(), *self._elections.values()):
                self._tasks.start(lane.run)
            task_status.started()
            await trio.sleep_forever()

    # ---- voters

    def _on_voters(self, voters: VoterSet) -> None:
        """Keep lanes to the other voters only."""
        before = self._addresses
        self._addresses = {
            voter: address
            for voter in voters.others(self._node_id)
            if (address := voters.address(voter)) is not None
        }
        for lanes in (self._fetches, self._elections):
            for voter, address in before.items():
                if self._addresses.get(voter) != address:
                    lanes.pop(voter).end()
            for voter, address in self._addresses.items():
                if voter not in lanes:
                    lanes[voter] = self._make_lane(voter, address)
                    self._tasks.start(lanes[voter].run)

    def _make_lane(self, voter: int, address: tuple[str, int]) -> VoterLane:
        timeout_ms = self._config.request_timeout_ms
        connect_timeout = ExponentialBackoff(timeout_ms, timeout_ms)
        settings = LinkSettings(self._client_id, connect_timeout, NO_BACKOFF)
        link = Link(self._network, lambda: address, settings)
        return VoterLane(voter, link, timeout_ms / 1000, self._encode, self)

    def _encode(self, message: Request) -> Any:
        assert self._service is not None, "attach comes first"
        return encode_request(
            message,
            self._service.identity.on_wire,
            self._service.voters.current,
            self._directory_id,
        )

    @asynccontextmanager
    async def _connect(self, voter: int) -> AsyncIterator[Connection]:
        """Open a connection beside the lanes."""
        address = self._addresses.get(voter)
        if address is None:
            raise ConnectionLost("it is not a voter any more")
        timeout_s = self._config.request_timeout_ms / 1000
        async with open_connection(
            self._network, *address, client_id=self._client_id, connect_timeout_s=timeout_s
        ) as connection:
            yield connection

    # ---- the quorum's port

    def send(self, message: Message) -> None:
        """Send soon, or lose."""
        assert isinstance(message, Request), f"{message!r} answers nobody"
        lanes = self._fetches if isinstance(message, Fetch) else self._elections
        lane = lanes.get(message.destination)
        if lane is None:
            reason = "it is not a voter that is known here"
            self.on_unreachable(message.destination, reason, refused=True)
        else:
            lane.send(message)

    def fetch_snapshot(self, source: int, snapshot_id: SnapshotId) -> None:
        """Start or go on to fetch a snapshot from the leader, unless this node stops."""
        assert self._downloads is not None, "attach comes first"
        self._downloads.fetch(source, snapshot_id)

    # ---- reports of the lanes

    def on_answer(self, node_id: int, answer: Response) -> None:
        """Hand an answer to the core."""
        assert self._service is not None, "attach comes first"
        if self._silent.pop(node_id, None) is not None:
            _log.info("quorum node is reached again node=%d", node_id)
        self._service.messages.step(answer)

    def on_unreachable(self, node_id: int, reason: str, *, refused: bool) -> None:
        """Report to the core that what was sent to a node is lost."""
        assert self._service is not None, "attach comes first"
        if self._silent.get(node_id) != reason:
            _log.info("quorum node cannot be reached node=%d reason=%s", node_id, reason)
        self._silent[node_id] = reason
        self._service.messages.peer_unreachable(node_id, refused=refused)

    def on_refusal(self, node_id: int, error: KafkaError | RemoteProtocolError) -> None:
        """Take a voter's refusal of a request as a whole; it may be of another cluster."""
        self.on_unreachable(node_id, f"it answers: {error}", refused=False)
        if isinstance(error, KafkaError) and error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
            assert self._other_clusters is not None, "attach comes first"
            self._other_clusters.ask(node_id)
