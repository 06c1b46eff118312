"""The metadata quorum's one task: persists, commits, applies and publishes; answers requests.

Owns: `QuorumService`, with the consensus core, the controller core and the committed image. Rules:
1. Per Ready: election state, truncation and append, fsync (in a worker thread), then messages, then
   committed records are applied: delta and new image go to the subscribers, in their order, and
   only then are the parked responses completed. Proposals made meanwhile wait for the next Ready
   and share its one batch and one fsync (group commit).
2. A response is sent when everything that its decision saw is committed, reads included.
3. The controller works while this node leads and has applied its own LeaderChange; when it stops
   leading, what was not committed is dropped and its callers get NOT_CONTROLLER.
4. An `OSError` of the metadata log ends `run`, and with it the node; so does a record that this
   release does not know, a leader that lacks what is committed, and another cluster's id. Lack of
   space alone is waited for: changes are decided once there is some.
5. Voters sync what they append before they tell anybody; observers leave that to the system.

Called by: node.py (`run`, `hand_over`), handlers and the controller channel (`submit`), everyone
who follows the metadata (`subscribe`, `image`), the quorum's network: api/quorum.py (`ask`,
snapshots out) and quorum_peers.py (`step`, `peer_unreachable`, snapshots in). Protocol: KIP-595,
KIP-631, KIP-630.
"""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.no_room import NO_ROOM
from kraftrio.base.threads import RunInThread, run_in_worker_thread
from kraftrio.kraft_meta.controller.cluster_control import LATE_MS
from kraftrio.kraft_meta.controller.control import ControllerConfig
from kraftrio.kraft_meta.controller.controller import Controller
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.metadata.image import Endpoint, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import MetadataRecord, decode_record, encode_record
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity
from kraftrio.kraft_meta.quorum.description import describe_quorum
from kraftrio.kraft_meta.quorum.log_batches import Snapshot, parse_snapshot
from kraftrio.kraft_meta.quorum.news import LeaderCallback, QuorumNews
from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.messages import Message, Request, Response
from kraftrio.kraft_meta.raft.ports import (
    ConfigValidator,
    ElectionStateStore,
    NoPeers,
    Peers,
    ReplicatedLog,
    TopicConfigs,
)
from kraftrio.kraft_meta.raft.quorum_state import Leader
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.raft_log import CommittedRecordsError
from kraftrio.kraft_meta.raft.ready import RaftConfig, Ready
from kraftrio.kraft_meta.raft.values import NO_NODE, LogBatch, SnapshotId
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftrio.wire.primitives import Buffer

_log = logging.getLogger("kraftrio.metadata")

_TURNS_IF_LATE = 8  # of the event loop, for what waits in sockets
_READ_BYTES = 8 * 1024 * 1024
_NO_ROOM_RETRY_S = 0.5

Subscriber = Callable[[MetadataDelta, MetadataImage], object]


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Who is in the quorum, and when snapshots are made (Kafka's property names)."""

    node_id: int
    voters: tuple[int, ...]
    voter_endpoints: Mapping[int, tuple[Endpoint, ...]] = field(default_factory=dict)
    raft: RaftConfig = field(default_factory=RaftConfig)
    metadata_log_max_record_bytes_between_snapshots: int = 20 * 1024 * 1024
    metadata_log_max_snapshot_interval_ms: int = 3_600_000


@dataclass(slots=True)
class _Parked:
    """A response that waits until everything up to `offset` is committed."""

    offset: int
    request: Any
    response: Any
    deferred: Deferred[Any]


class QuorumService:
    """See the module; one per node."""

    def __init__(
        self,
        config: QuorumConfig,
        controller_config: ControllerConfig,
        *,
        log: ReplicatedLog,
        election_store: ElectionStateStore,
        validator: ConfigValidator,
        topic_configs: TopicConfigs,
        clock: Clock,
        rng: random.Random,
        peers: Peers | None = None,
        run_in_thread: RunInThread = run_in_worker_thread,
        identity: ClusterIdentity | None = None,
    ) -> None:
        self.config = config
        self.image = MetadataImage()
        self.identity = identity or ClusterIdentity(controller_config.cluster_id, "this node")
        self._log = log
        self._election_store = election_store
        self._clock = clock
        self._rng = rng
        self._peers = peers if peers is not None else NoPeers()
        self._run_in_thread = run_in_thread
        self._controller = Controller(
            controller_config, validator, topic_configs, rng, lambda: _new_uuid(rng)
        )
        self._core: RaftCore | None = None
        self._reign_epoch = -1
        self._subscribers: list[Subscriber] = []
        self._parked: deque[_Parked] = deque()
        self._unapplied: deque[LogBatch] = deque()
        self._wake = trio.Event()
        self._input = trio.Event()
        self._last_timestamp_ms = -1
        self._bytes_since_snapshot = 0
        self._snapshot_due_ms = math.inf
        self._snapshot_running = False
        self._written_snapshot: SnapshotId | None = None
        self._received_snapshot: tuple[SnapshotId, Buffer] | None = None
        self._news = QuorumNews()
        self._asked: dict[int, Deferred[Response]] = {}
        self._failure: Exception | None = None  # met by somebody else than `run`
        self._next_request_id = 1

    # ---- what everyone may ask

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def is_loaded(self) -> bool:
        """The log is read: messages from other nodes can be answered."""
        return self._core is not None

    @property
    def leader_id(self) -> int:
        """The active controller's id, -1 when unknown."""
        return -1 if self._core is None else self._core.leader_id

    @property
    def leader_epoch(self) -> int:
        return -1 if self._core is None else self._core.epoch

    @property
    def has_been_led(self) -> bool:
        """Some node has led the quorum since this one started."""
        return self._core is not None and self._core.has_met_leader

    @property
    def has_nothing(self) -> bool:
        """This node's metadata log has no record yet, and should have none."""
        return self._core is not None and self._core.log.has_nothing

    @property
    def is_active_controller(self) -> bool:
        """This node decides about the cluster now."""
        return self._controller.is_active

    @property
    def high_watermark(self) -> int:
        """The committed end of the log, -1 when unknown."""
        if self._core is None or self._core.log.high_watermark is None:
            return -1
        return self._core.log.high_watermark

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell `subscriber(delta, image)` everything now and each change from now on.

        Subscribers are called in the order in which they came, on the loop; what they raise ends
        the node.
        """
        self._subscribers.append(subscriber)
        subscriber(MetadataDelta.full(self.image), self.image)

    def on_leader_change(self, callback: LeaderCallback) -> None:
        """Call `callback(leader_id, leader_epoch)` now and at every change, on the loop."""
        self._news.on_leader_change(callback)

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """Answer DescribeQuorum as far as this node knows."""
        return describe_quorum(
            request,
            self._core,
            self.config.voter_endpoints,
            wall_ms=self._clock.wall_ms(),
            now_ms=self._clock.monotonic_ms(),
        )

    # ---- requests

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        """Let the controller decide on a request; the response comes once it is committed."""
        if isinstance(request, DescribeQuorumRequest):
            return Deferred.completed(self.describe_quorum(request))
        core, controller = self._core, self._controller
        if core is None or not controller.is_active:
            return Deferred.completed(error_response(request, ErrorCode.NOT_CONTROLLER))
        try:
            result = controller.handle(
                request,
                api_version=api_version,
                next_offset=core.log.end_offset,
                now_ms=self._clock.monotonic_ms(),
            )
        except KafkaError as error:
            return Deferred.completed(error_response(request, error.code, error.message))
        if result.records:
            self._propose(core, result.records)
        elif core.log.end_offset - 1 <= self.image.offset:
            self._wake.set()  # a session may have a new deadline
            return Deferred.completed(result.response)
        deferred: Deferred[Any] = Deferred()
        self._parked.append(_Parked(core.log.end_offset - 1, request, result.response, deferred))
        return deferred

    def _propose(self, core: RaftCore, records: Sequence[MetadataRecord]) -> None:
        base_offset = core.propose([encode_record(record) for record in records])
        self._controller.replay(records, base_offset + len(records) - 1, core.epoch)
        self._wake.set()

    def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose process is known to be gone, if this node decides that."""
        core = self._core
        if core is not None and self._controller.is_active:
            records = self._controller.broker_connection_lost(
                broker_id, broker_epoch, self._clock.monotonic_ms()
            )
            if records:
                self._propose(core, records)

    # ---- the network's inputs

    def step(self, message: Message) -> None:
        """Take a message from another node of the quorum."""
        if self._core is not None:
            try:
                self._core.step(message, self._clock.monotonic_ms())
            except (OSError, CommittedRecordsError) as error:
                self.fail(error)  # no matter of who sent the message
                return
            self._after_input(self._core)

    def fail(self, error: Exception) -> None:
        """End `run` with an error that somebody else met."""
        self._failure = error
        self._wake.set()

    def ask(self, message: Request) -> Deferred[Response]:
        """Take a request from another node; what must be durable before the answer is so then."""
        assert self._core is not None, "the log is loaded"
        deferred: Deferred[Response] = Deferred()
        request_id, self._next_request_id = self._next_request_id, self._next_request_id + 1
        self._asked[request_id] = deferred
        self.step(replace(message, request_id=request_id))
        return deferred

    def peer_unreachable(self, node_id: int, *, refused: bool = True) -> None:
        """Take the news that what was sent to a node is lost; refused: nobody listens there."""
        if self._core is not None:
            self._core.peer_unreachable(node_id, self._clock.monotonic_ms(), refused=refused)
            self._after_input(self._core)

    def _after_input(self, core: RaftCore) -> None:
        self._check_reign(core)
        self._wake.set()
        self._input.set()

    def _send(self, message: Message) -> None:
        deferred = self._asked.pop(message.request_id, None)
        if deferred is not None:
            assert not isinstance(message, Request)
            deferred.complete(message)
        else:
            self._peers.send(message)

    # ---- snapshots out and in

    def read_snapshot(
        self, source: int, epoch: int, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        """Return bytes of a snapshot from a position on, and its size, to a node of the quorum.

        Raises:
            KafkaError: this node does not lead that epoch, has no such snapshot, or the position
                is not in it.
        """
        assert self._core is not None, "the log is loaded"
        error = self._core.answers.on_snapshot_fetch(source, epoch, self._clock.monotonic_ms())
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        chunk = self._log.read_snapshot_chunk(snapshot_id, max(position, 0), max_bytes)
        if chunk is None:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND)
        if not 0 <= position < chunk[1]:
            raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE)
        return chunk

    @property
    def replica_id(self) -> int:
        """Who this node is to a leader that it fetches from; -1: a voter that is not counted."""
        core = self._core
        return self.node_id if core is None or core.memory.is_proven else NO_NODE

    def snapshot_progress(self, source: int) -> bool:
        """Take the news that a piece of the snapshot has come; False: it is not wanted any more."""
        core = self._core
        return core is not None and core.snapshots.on_progress(source, self._clock.monotonic_ms())

    def snapshot_received(self, snapshot_id: SnapshotId, data: Buffer) -> None:
        """Take the snapshot that `Peers.fetch_snapshot` asked for."""
        self._received_snapshot = (snapshot_id, data)
        self._wake.set()

    def snapshot_failed(self) -> None:
        """Take the news that the snapshot cannot be had; the leader is asked for another."""
        if self._core is not None:
            self._core.snapshots.on_failed(self._clock.monotonic_ms())
            self._wake.set()

    # ---- the end of leading

    def resign(self) -> None:
        """Let another voter lead; the first step of a graceful stop."""
        if self._core is not None:
            self._core.resign(self._clock.monotonic_ms())
            self._after_input(self._core)

    async def hand_over(self, timeout_ms: float) -> bool:
        """Resign and wait until another voter leads; False: none does in time, or can.

        A node that does not lead has nothing to hand over.
        """
        core = self._core
        if core is None or not core.is_leader or not core.quorum.other_voters:
            return False
        self.resign()
        with trio.move_on_after(timeout_ms / 1000):
            while core.may_be_succeeded():
                self._input = trio.Event()
                await self._input.wait()
        return core.leader_id not in (NO_NODE, core.node_id)

    # ---- the task

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load, then work until cancelled.

        `task_status.started` comes when the log is loaded; in a quorum of one, when this node is
        the active controller. OSError and what subscribers raise propagate (in a group).
        """
        try:
            core = await self._load()
            single = self.config.voters == (self.config.node_id,)
            started = False
            async with trio.open_nursery() as nursery:
                while True:
                    await self._work(core, nursery)
                    if not started and (self._controller.is_active or not single):
                        started = True
                        task_status.started()
                    await self._wait(core)
        finally:
            self._log.close()

    async def _load(self) -> RaftCore:
        log = self._log
        snapshot_id = log.latest_snapshot_id()
        if snapshot_id is not None:
            values: list[bytes] = []
            loaded_id = snapshot_id

            def read_snapshot() -> None:
                values.extend(log.read_snapshot(loaded_id))

            await self._run_in_thread(read_snapshot)
            self._load_snapshot(snapshot_id, values)
        now_ms = self._clock.monotonic_ms()
        epochs = EpochStarts(
            log.epoch_starts(), log.log_start_offset, log.log_end_offset, snapshot_id
        )
        self._core = RaftCore(
            node_id=self.config.node_id,
            voters=VoterSet.of_ids(self.config.voters),
            log=log,
            epochs=epochs,
            stored=self._election_store.read(),
            config=self.config.raft,
            rng=self._rng,
            now_ms=now_ms,
        )
        self._bytes_since_snapshot = log.size_bytes
        return self._core

    def _load_snapshot(self, snapshot_id: SnapshotId, values: Sequence[bytes]) -> None:
        delta = MetadataDelta(MetadataImage())
        for value in values:
            delta.replay(decode_record(value))
        image = delta.apply(snapshot_id.end_offset - 1, snapshot_id.epoch)
        self._learn_cluster_id(image)
        self._unapplied.clear()
        self._publish(MetadataDelta.between(self.image, image), image)

    async def _hear_sockets(self, core: RaftCore) -> None:
        """Let what waits in sockets be heard before a deadline is acted on.

        After this process stood still every connection has something: each takes a few turns of the
        event loop to read it and to hand it on.
        """
        late_ms = self._clock.monotonic_ms() - self._next_deadline_ms(core)
        if late_ms >= 0:
            for _ in range(_TURNS_IF_LATE if late_ms >= LATE_MS else 1):
                await trio.lowlevel.checkpoint()

    async def _work(self, core: RaftCore, nursery: trio.Nursery) -> None:
        """Do everything that can be done now."""
        while True:
            if self._failure is not None:
                raise self._failure
            self._wake = trio.Event()
            await self._hear_sockets(core)
            now_ms = self._clock.monotonic_ms()
            core.tick(now_ms)
            self._check_reign(core)
            self._run_controller_deadline(core, now_ms)
            await self._finish_snapshots(core)
            self._maybe_start_snapshot(now_ms, nursery)
            if not core.has_ready():
                return
            ready = core.ready(self._clock.wall_ms())
            await self._persist(core, ready)
            for message in ready.messages:
                self._send(message)
            if ready.install_snapshot is not None:
                self._peers.fetch_snapshot(*ready.install_snapshot)
            core.advance()
            if ready.high_watermark is not None:
                self._apply(ready.high_watermark)
            self._check_reign(core)

    async def _wait(self, core: RaftCore) -> None:
        deadline_ms = self._next_deadline_ms(core)
        if not self._snapshot_running:
            deadline_ms = min(deadline_ms, self._snapshot_due_ms)
        with trio.move_on_after(max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000):
            await self._wake.wait()

    def _next_deadline_ms(self, core: RaftCore) -> float:
        deadlines = core.next_deadline_ms(), self._controller.next_deadline_ms()
        return min((d for d in deadlines if d is not None), default=math.inf)

    async def _persist(self, core: RaftCore, ready: Ready) -> None:
        """Make a Ready durable, in the order that raft.py asks for."""
        log, state, truncate_to = self._log, ready.election_state, ready.truncate_to
        if state is not None or truncate_to is not None:

            def prepare() -> None:
                if state is not None:
                    self._election_store.write(state, core.quorum.voters.ids)
                if truncate_to is not None:
                    log.truncate_to(truncate_to)

            await self._run_in_thread(prepare)
        if truncate_to is not None:
            _log.info(
                "metadata log cut to=%d leader=%d epoch=%d", truncate_to, core.leader_id, core.epoch
            )
            while self._unapplied and self._unapplied[-1].end_offset > truncate_to:
                self._unapplied.pop()
        if ready.batches:
            for batch in ready.batches:
                self._bytes_since_snapshot += await self._append(batch)
            self._unapplied.extend(ready.batches)
            if core.quorum.is_voter:
                await self._run_in_thread(log.flush)

    async def _append(self, batch: LogBatch) -> int:
        """Write a batch, when there is no space later: what waits for it is not decided yet."""
        told = False
        while True:
            try:
                written = self._log.append([batch])
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                if not told:
                    _log.error("metadata log cannot be written now, changes wait reason=%s", error)
                    told = True
                await trio.sleep(_NO_ROOM_RETRY_S)
                continue
            if told:
                _log.info("metadata log can be written again")
            return written

    # ---- committed records

    def _apply(self, high_watermark: int) -> None:
        """Take committed records over, publish them, answer who waited for them."""
        delta = MetadataDelta(self.image)
        offset, epoch = self.image.offset, self.image.epoch
        for batch in self._committed_batches(high_watermark):
            if not batch.is_control:
                for value in batch.values:
                    delta.replay(decode_record(value))
            offset, epoch = batch.end_offset - 1, batch.epoch
            self._last_timestamp_ms = max(self._last_timestamp_ms, batch.timestamp_ms)
        if offset > self.image.offset:
            image = delta.apply(offset, epoch)
            self._learn_cluster_id(image)
            self._publish(delta, image)
        while self._parked and self._parked[0].offset <= self.image.offset:
            parked = self._parked.popleft()
            parked.deferred.complete(parked.response)

    def _committed_batches(self, high_watermark: int) -> list[LogBatch]:
        next_offset = self.image.offset + 1
        batches: list[LogBatch] = []
        if not self._unapplied or self._unapplied[0].base_offset > next_offset:
            # Right after loading: what is committed is on disk only.
            end = self._unapplied[0].base_offset if self._unapplied else high_watermark
            while next_offset < min(end, high_watermark):
                read = self._log.read(next_offset, min(end, high_watermark), _READ_BYTES)
                assert read, "the log holds what is committed"
                batches += read
                next_offset = read[-1].end_offset
        while self._unapplied and self._unapplied[0].end_offset <= high_watermark:
            batch = self._unapplied.popleft()
            if batch.base_offset >= next_offset:
                batches.append(batch)
        return batches

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        for subscriber in self._subscribers:
            subscriber(delta, image)

    def _learn_cluster_id(self, image: MetadataImage) -> None:
        if image.cluster_id:
            self.identity.learn(image.cluster_id, "the metadata log")

    # ---- the controller's reign

    def _check_reign(self, core: RaftCore) -> None:
        """Start or end the controller as leadership has it (rule 3); tell who leads."""
        controller, role = self._controller, core.quorum.role
        if controller.is_active and (
            not isinstance(role, Leader) or core.epoch != self._reign_epoch
        ):
            _log.info("no longer the active controller epoch=%d", self._reign_epoch)
            controller.deactivate()
            parked, self._parked = self._parked, deque()
            for entry in parked:
                entry.deferred.complete(error_response(entry.request, ErrorCode.NOT_CONTROLLER))
        if (
            isinstance(role, Leader)
            and not controller.is_active
            and self.image.offset >= role.epoch_start_offset
        ):
            assert core.log.end_offset == self.image.offset + 1
            self._reign_epoch = core.epoch
            _log.info("active controller epoch=%d offset=%d", core.epoch, self.image.offset)
            records = controller.activate(self.image, self._clock.monotonic_ms())
            if records:
                self._propose(core, records)
        self._news.tell(core, self._clock.monotonic_ms())

    def _run_controller_deadline(self, core: RaftCore, now_ms: float) -> None:
        while self._controller.is_active:
            deadline_ms = self._controller.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                return
            records = self._controller.on_deadline(now_ms)
            if records:
                self._propose(core, records)

    # ---- snapshots

    def _maybe_start_snapshot(self, now_ms: float, nursery: trio.Nursery) -> None:
        config, image = self.config, self.image
        interval_ms = config.metadata_log_max_snapshot_interval_ms or math.inf  # 0: never
        if self._snapshot_due_ms is math.inf:
            self._snapshot_due_ms = now_ms + interval_ms
        if self._snapshot_running:
            return
        size_due = (
            self._bytes_since_snapshot >= config.metadata_log_max_record_bytes_between_snapshots
        )
        time_due = now_ms >= self._snapshot_due_ms
        if not size_due and not time_due:
            return
        self._snapshot_due_ms = now_ms + interval_ms
        newest = self._log.latest_snapshot_id()
        if image.offset < 0 or (newest is not None and newest.end_offset > image.offset):
            return
        self._bytes_since_snapshot = 0
        self._snapshot_running = True
        nursery.start_soon(self._write_snapshot, image)

    async def _write_snapshot(self, image: MetadataImage) -> None:
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        timestamp_ms = self._last_timestamp_ms

        def write() -> None:
            values = (encode_record(record) for record in image.to_records())
            self._log.write_snapshot(snapshot_id, values, timestamp_ms)

        try:
            await self._run_in_thread(write)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _log.error("a snapshot cannot be written now reason=%s", error)
            self._snapshot_running = False
            return
        _log.info("snapshot written offset=%d epoch=%d", *snapshot_id)
        self._written_snapshot = snapshot_id
        self._snapshot_running = False
        self._wake.set()

    async def _finish_snapshots(self, core: RaftCore) -> None:
        """Let the log start at a snapshot that was written or received; between two Readys."""
        written, self._written_snapshot = self._written_snapshot, None
        if written is not None and written == self._log.latest_snapshot_id():
            await self._run_in_thread(self._log.flush)  # so that cleaning need not wait for it
            self._log.clean_before(written)
            core.log.on_snapshot_written(written)
        received = self._received_snapshot
        if received is None or self._snapshot_running:
            return  # one at a time
        self._received_snapshot = None
        if not core.snapshots.begin(received[0]):
            core.snapshots.on_failed(self._clock.monotonic_ms())
        elif not await self._install(*received):
            core.snapshots.on_install_failed(self._clock.monotonic_ms())
        else:
            core.snapshots.on_installed(received[0], self._clock.monotonic_ms())

    async def _install(self, snapshot_id: SnapshotId, data: Buffer) -> bool:
        """Put a received snapshot in the log's place; False: it is damaged."""
        parsed: list[Snapshot] = []

        def install() -> None:
            snapshot = parse_snapshot(data)
            self._log.write_snapshot(snapshot_id, *snapshot)
            self._log.reset_to(snapshot_id)
            parsed.append(snapshot)

        try:
            await self._run_in_thread(install)
        except KafkaError as error:
            _log.error("the leader's snapshot is damaged reason=%s", error)
            return False
        _log.info("snapshot installed offset=%d epoch=%d", *snapshot_id)
        (snapshot,) = parsed
        self._last_timestamp_ms = snapshot.last_timestamp_ms
        self._load_snapshot(snapshot_id, snapshot.values)
        return True


def _new_uuid(rng: random.Random) -> bytes:
    """Return a random uuid (version 4) that Kafka does not reserve.

    Its text does not begin with a dash, which command lines would take for an option, as Kafka's.
    """
    while True:
        value = bytearray(rng.randbytes(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        if value[0] >> 2 != 0x3E:
            return bytes(value)
