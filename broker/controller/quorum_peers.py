"""The way to the other nodes of the metadata quorum: the quorum's port `Peers` over connections.

Owns: the connections to the voters and the download of a snapshot. Rules:
1. Nothing blocks and nothing is kept for later: a message is sent when its connection is there or
   can be made at once, else it is lost and reported to `QuorumService.peer_unreachable`; the
   consensus core retries when it wants to.
2. A voter is reached by two connections, each made when it is needed: one for fetches, which the
   leader may keep waiting, and one for everything else, which must not wait behind them.
3. A message about elections whose connection broke is sent once more over a new one: such messages
   may come twice. A fetch is left to the core.
4. A voter that answers with another cluster's id is asked which; when a majority of the voters is
   of another cluster, and nobody led this node since it started, it ends (ClusterIdError).
5. A snapshot comes in pieces over a connection of its own. What has come of it is kept until it is
   whole, another is wanted, or the leader has it no more; only the whole is handed on.

Called by: the quorum service (`send`, `fetch_snapshot`), node.py (`attach`, `run`). Protocol:
KIP-595, KIP-630.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial

import trio

from kraftrio.base.backoff import NO_BACKOFF, ExponentialBackoff
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdError
from kraftrio.kraft_meta.quorum.raft_wire import (
    SENT_VERSIONS,
    decode_response,
    decode_snapshot_response,
    encode_request,
    snapshot_request,
)
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.kraft_meta.raft.messages import Fetch, Message, Request
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.values import SnapshotId
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.net.connection import (
    Connection,
    ConnectionLost,
    Reply,
    RequestTimedOut,
    open_connection,
)
from kraftrio.net.link import Link, LinkSettings, Loss
from kraftrio.net.transport import Network
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.messages.cluster import DescribeClusterRequest

_log = logging.getLogger("kraftrio.metadata")

_CONTROLLER_ENDPOINT = 2


class QuorumPeers:
    """Sends for one node; `attach` before `run`."""

    def __init__(
        self,
        network: Network,
        node_id: int,
        directory_id: bytes,
        config: RaftConfig,
    ) -> None:
        self.network = network
        self.node_id = node_id
        self.directory_id = directory_id
        self.config = config
        self._service: QuorumService | None = None
        self._addresses: dict[int, tuple[str, int]] = {}  # of the other voters
        self._fetches: dict[int, _Lane] = {}
        self._elections: dict[int, _Lane] = {}
        self._silent: dict[int, str] = {}  # voters that cannot be reached, and why
        self._nursery: trio.Nursery | None = None
        self._download: _Download | None = None
        self._other_clusters: dict[int, str] = {}  # voters of another cluster, and its id
        self._asked_for_cluster: set[int] = set()

    @property
    def service(self) -> QuorumService:
        """The quorum that this belongs to."""
        assert self._service is not None, "attach comes first"
        return self._service

    def attach(self, service: QuorumService) -> None:
        """Name the service that takes the answers and knows the voters."""
        self._service = service
        service.voters.subscribe(self._on_voters)

    def _on_voters(self, voters: VoterSet) -> None:
        """Keep lanes to the other voters, and to nobody else."""
        before = self._addresses
        self._addresses = {
            voter: address
            for voter in voters.others(self.node_id)
            if (address := voters.address(voter)) is not None
        }
        for lanes in (self._fetches, self._elections):
            for voter, address in before.items():
                if self._addresses.get(voter) != address:
                    lanes.pop(voter).end()
            for voter, address in self._addresses.items():
                if voter not in lanes:
                    lanes[voter] = _Lane(self, voter, *address)
                    if self._nursery is not None:
                        self._nursery.start_soon(lanes[voter].run)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for lane in (*self._fetches.values(), *self._elections.values()):
                nursery.start_soon(lane.run)
            task_status.started()

    # ---- the quorum's port

    def send(self, message: Message) -> None:
        """Send soon, or lose."""
        assert isinstance(message, Request), f"{message!r} answers nobody"
        lanes = self._fetches if isinstance(message, Fetch) else self._elections
        lane = lanes.get(message.destination)
        if lane is None:
            self.unreachable(message.destination, "it is no voter that is known here", True)
        else:
            lane.send(message)

    def fetch_snapshot(self, source: int, snapshot_id: SnapshotId) -> None:
        """Start or go on to fetch a snapshot from the leader."""
        download = self._download
        if download is None or (download.source, download.snapshot_id) != (source, snapshot_id):
            if download is not None:
                download.scope.cancel()
            download = self._download = _Download(source, snapshot_id)
        elif download.is_running:
            return
        assert self._nursery is not None, "run has started"
        download.is_running = True
        self._nursery.start_soon(self._run_download, download)

    # ---- reports of the lanes

    def unreachable(self, node_id: int, reason: str, refused: bool) -> None:
        """Report to the core that what was sent to a node is lost."""
        if self._silent.get(node_id) != reason:
            _log.info("quorum node cannot be reached node=%d reason=%s", node_id, reason)
        self._silent[node_id] = reason
        self.service.peer_unreachable(node_id, refused=refused)

    def answered(self, node_id: int) -> None:
        """Note that a node answers."""
        if self._silent.pop(node_id, None) is not None:
            _log.info("quorum node is reached again node=%d", node_id)

    # ---- other clusters

    def refused(self, node_id: int, error: KafkaError | RemoteProtocolError) -> None:
        """Take a voter's refusal of a request as a whole."""
        self.unreachable(node_id, f"it answers: {error}", False)
        names_other_cluster = (
            isinstance(error, KafkaError) and error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        )
        is_asked = node_id in self._asked_for_cluster
        if names_other_cluster and self.service.identity.is_known and not is_asked:
            assert self._nursery is not None, "run has started"
            self._asked_for_cluster.add(node_id)
            self._nursery.start_soon(self._ask_cluster_id, node_id)

    async def _ask_cluster_id(self, node_id: int) -> None:
        timeout_s = self.config.request_timeout_ms / 1000
        request = DescribeClusterRequest(endpoint_type=_CONTROLLER_ENDPOINT)
        try:
            async with open_connection(
                self.network,
                *self._addresses[node_id],
                client_id=self.client_id,
                connect_timeout_s=timeout_s,
            ) as connection:
                response = await connection.call(request, 1, timeout_s)
        except (ConnectionLost, RemoteProtocolError) as error:
            _log.info("cluster id cannot be asked for node=%d reason=%s", node_id, error)
        else:
            self._on_cluster_id(node_id, response.cluster_id)
        self._asked_for_cluster.discard(node_id)

    def _on_cluster_id(self, node_id: int, cluster_id: str) -> None:
        service = self.service
        if service.identity.admits(cluster_id):
            self._other_clusters.pop(node_id, None)
            return
        host, port = self._addresses[node_id]
        source = f"the quorum's node {node_id} at {host}:{port}"
        if self._other_clusters.get(node_id) != cluster_id:
            _log.warning(
                "%s is of cluster %s, this node of %s",
                source,
                cluster_id,
                service.identity.cluster_id,
            )
        self._other_clusters[node_id] = cluster_id
        is_majority = len(self._other_clusters) >= service.voters.current.majority
        if is_majority and not service.has_been_led:
            try:
                service.identity.learn(cluster_id, source)
            except ClusterIdError as error:
                service.fail(error)

    # ---- snapshots

    async def _run_download(self, download: _Download) -> None:
        with trio.CancelScope() as download.scope:
            try:
                await self._fetch_pieces(download)
            except ConnectionLost as lost:
                _log.info("snapshot fetch interrupted node=%d %s", download.source, lost)
            except (KafkaError, RemoteProtocolError) as error:
                _log.warning("snapshot cannot be fetched node=%d %s", download.source, error)
                if self._download is download:
                    self._download = None
        download.is_running = False
        if self._download is download or self._download is None:
            if download.is_whole:
                self._download = None
                self.service.snapshot_received(download.snapshot_id, download.data)
            else:
                self.service.snapshot_failed()

    async def _fetch_pieces(self, download: _Download) -> None:
        timeout_s = self.config.request_timeout_ms / 1000
        host, port = self._addresses[download.source]
        async with open_connection(
            self.network, host, port, client_id=self.client_id, connect_timeout_s=timeout_s
        ) as connection:
            while not download.is_whole:
                request = snapshot_request(
                    self.service.replica_id,
                    self.service.leader_epoch,
                    download.snapshot_id,
                    len(download.data),
                    self.config.snapshot_chunk_bytes,
                    self.service.identity.on_wire,
                )
                version = SENT_VERSIONS[type(request)]
                response = await connection.call(request, version, timeout_s)
                piece = decode_snapshot_response(response)
                named = (piece.snapshot_id.end_offset, piece.snapshot_id.epoch)
                if named != download.snapshot_id:
                    raise RemoteProtocolError(f"asked for {download.snapshot_id}, got {named}")
                download.append(piece.position, records_view(piece.unaligned_records), piece.size)
                if not self.service.snapshot_progress(download.source):
                    return

    @property
    def client_id(self) -> str:
        return f"raft-client-{self.node_id}"


@dataclass(slots=True)
class _Download:
    """A snapshot as far as it has come."""

    source: int
    snapshot_id: SnapshotId
    data: bytearray = field(default_factory=bytearray)
    size_bytes: int = -1
    is_running: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.size_bytes

    def append(self, position: int, piece: memoryview, size_bytes: int) -> None:
        """Take the next piece. Raises RemoteProtocolError when it does not fit."""
        if (
            position != len(self.data)
            or not piece
            or size_bytes < position + len(piece)
            or self.size_bytes not in (-1, size_bytes)
        ):
            raise RemoteProtocolError(
                f"a piece of {len(piece)} bytes at {position} of {size_bytes} does not follow"
                f" {len(self.data)} of {self.size_bytes}"
            )
        self.size_bytes = size_bytes
        self.data += piece


class _Lane:
    """One connection to one voter, made when there is something to send."""

    def __init__(self, peers: QuorumPeers, node_id: int, host: str, port: int) -> None:
        self._peers = peers
        self._node_id = node_id
        timeout_ms = peers.config.request_timeout_ms
        self._timeout_s = timeout_ms / 1000
        # Without back-off: the consensus core says when it wants to try again.
        settings = LinkSettings(
            peers.client_id, ExponentialBackoff(timeout_ms, timeout_ms), NO_BACKOFF
        )
        self._link = Link(peers.network, lambda: (host, port), settings)
        # What waits for the connection: the newest message of each kind, and whether it was sent
        # before.
        self._queue: dict[type[Request], tuple[Request, bool]] = {}
        self._wake = trio.Event()
        self._scope = trio.CancelScope()

    def send(self, message: Request, *, again: bool = False) -> None:
        """Send over the connection, or queue for the one that is made."""
        connection = self._link.connection
        if connection is not None:
            self._transmit(connection, message, again)
        else:
            self._queue[type(message)] = (message, again)
            self._wake.set()

    async def run(self) -> None:
        """Make connections as long as there is something to send, until ended."""
        with self._scope:
            while True:
                if not self._queue:
                    self._wake = trio.Event()
                    await self._wake.wait()
                await self._link.keep(self._serve, self._on_loss, wanted=lambda: bool(self._queue))

    def end(self) -> None:
        """End `run`: nothing is sent to this voter any more."""
        self._scope.cancel()

    async def _serve(self, connection: Connection) -> None:
        while self._queue:
            self._transmit(connection, *self._queue.pop(next(iter(self._queue))))
        await connection.wait_closed()

    def _on_loss(self, loss: Loss) -> None:
        if not loss.was_ready:  # else the requests under way have reported it
            self._queue.clear()
            self._peers.unreachable(self._node_id, loss.reason, loss.refused)

    def _transmit(self, connection: Connection, message: Request, again: bool) -> None:
        service = self._peers.service
        request = encode_request(
            message,
            service.identity.on_wire,
            service.voters.current,
            self._peers.directory_id,
        )
        try:
            reply = connection.send(request, SENT_VERSIONS[type(request)], self._timeout_s)
        except ConnectionLost as lost:
            self._lose(message, again, lost)
        else:
            reply.then(partial(self._on_reply, message, again))

    def _on_reply(self, message: Request, again: bool, reply: Reply) -> None:
        try:
            response = reply.value()
        except ConnectionLost as lost:
            self._lose(message, again, lost)
            return
        try:
            answer = decode_response(message, response)
        except (KafkaError, RemoteProtocolError) as error:
            self._peers.refused(self._node_id, error)
            return
        self._peers.answered(self._node_id)
        self._peers.service.step(answer)

    def _lose(self, message: Request, again: bool, lost: ConnectionLost) -> None:
        if again or isinstance(message, Fetch) or isinstance(lost, RequestTimedOut):
            self._peers.unreachable(self._node_id, lost.reason, False)
        else:
            self._queue.setdefault(type(message), (message, True))
            self._wake.set()
