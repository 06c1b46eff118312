"""The metadata quorum's one task: persists, commits, applies and publishes; answers requests.

Owns: `QuorumService`, with the Raft core and the parts that work for it. Rules:
1. Per Ready: election state, truncation and append, fsync (in a worker thread), then messages, then
   committed records are applied: delta and new image go to the subscribers, and only then are the
   waiting responses completed. Proposals made meanwhile wait for the next Ready and share its one
   batch and one fsync (group commit).
2. An `OSError` of the metadata log ends `run`, and with it the node; so does a record that this
   release does not know, a leader that lacks what is committed, and another cluster's id. Lack of
   space alone is waited for: changes are decided once there is some.

The parts: `ReadyWriter` (disk), `MetadataPublication` (committed records as images),
`ActiveController` (decisions while this node leads), `MetadataSnapshots`, `LeaderWatch` (who leads,
for others and for the log), `CurrentVoters`.

Called by: node.py (`run`, `hand_over`), handlers and the controller client (`submit`), everyone who
follows the metadata (`subscribe`, `image`), the quorum's network: api/quorum.py (`ask`, snapshots
out) and quorum_peers.py (`step`, `peer_unreachable`, snapshots in). Protocol: KIP-595, KIP-631,
KIP-630.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import trio

from kraftrio.base.deferred import Deferred
from kraftrio.base.statistics import Statistics
from kraftrio.kraft_meta.controller.cluster_control import LATE_MS
from kraftrio.kraft_meta.controller.control import ControllerConfig
from kraftrio.kraft_meta.controller.controller import Controller
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.quorum.active_controller import NEVER_DECIDED, ActiveController, new_uuid
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity
from kraftrio.kraft_meta.quorum.description import describe_quorum
from kraftrio.kraft_meta.quorum.leader_watch import LeaderCallback, LeaderWatch
from kraftrio.kraft_meta.quorum.publication import MetadataPublication, Subscriber
from kraftrio.kraft_meta.quorum.ready_writer import ReadyWriter
from kraftrio.kraft_meta.quorum.settings import QuorumConfig, QuorumPorts
from kraftrio.kraft_meta.quorum.snapshots import MetadataSnapshots
from kraftrio.kraft_meta.quorum.voter_changes import CurrentVoters
from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.messages import Message, Request, Response
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.raft_log import CommittedRecordsError
from kraftrio.kraft_meta.raft.ready import Ready
from kraftrio.kraft_meta.raft.values import NO_NODE, SnapshotId
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftrio.wire.primitives import Buffer

_TURNS_IF_LATE = 8  # of the event loop, so that what waits in sockets is read


class QuorumService:
    """See the module; one per node.

    Attributes:
        config: who is in the quorum.
        identity: which cluster this is, as far as is known.
        voters: who votes; whoever keeps connections to the voters subscribes.
    """

    def __init__(
        self,
        config: QuorumConfig,
        controller_config: ControllerConfig,
        ports: QuorumPorts,
        identity: ClusterIdentity | None = None,
    ) -> None:
        self.config = config
        self.identity = identity or ClusterIdentity(controller_config.cluster_id, "this node")
        self.voters = CurrentVoters(config.voters)
        self._ports = ports
        self._log = ports.log
        self._clock = ports.clock
        self._controller_config = controller_config
        self._wake = trio.Event()
        self._input = trio.Event()
        self._writer = ReadyWriter(ports.log, ports.election_store, ports.run_in_thread)
        self._publication = MetadataPublication(ports.log, self.identity)
        self._snapshots = MetadataSnapshots(
            config, ports.log, self._publication, ports.clock, ports.run_in_thread, self._wake_up
        )
        self._leader_watch = LeaderWatch()
        self._core: RaftCore | None = None
        self._active: ActiveController | None = None  # once the log is loaded
        self._asked: dict[int, Deferred[Response]] = {}
        self._next_request_id = 1
        self._failure: Exception | None = None  # met outside `run`

    # ---- what everyone may ask

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def image(self) -> MetadataImage:
        """Everything that is committed, as far as it was applied."""
        return self._publication.image

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
        return self._active is not None and self._active.is_active

    @property
    def high_watermark(self) -> int:
        """The committed end of the log, -1 when unknown."""
        if self._core is None or self._core.log.high_watermark is None:
            return -1
        return self._core.log.high_watermark

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(delta, image)` now, with everything, and at each change from now on.

        Subscribers are called in the order in which they came, on the loop; what they raise ends
        the node.
        """
        self._publication.subscribe(subscriber)

    def on_leader_change(self, callback: LeaderCallback) -> None:
        """Call `callback(leader_id, leader_epoch)` now and at every change, on the loop."""
        self._leader_watch.subscribe(callback)

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """Answer DescribeQuorum as far as this node knows."""
        return describe_quorum(
            request,
            self._core,
            self.voters.current,
            wall_ms=self._clock.wall_ms(),
            now_ms=self._clock.monotonic_ms(),
        )

    def statistics(self) -> Statistics:
        """Figures of the quorum, as far as this node knows; offsets are -1 when unknown."""
        core, active = self._core, self._active
        return {
            "current_leader": self.leader_id,
            "current_epoch": self.leader_epoch,
            "current_vote": NO_NODE if core is None else core.quorum.voted_id,
            "voters": len(self.voters.current),
            "active_controller_count": int(self.is_active_controller),
            "log_end_offset": -1 if core is None else core.log.end_offset,
            "high_watermark": self.high_watermark,
            "applied_offset": self.image.offset,
            "parked_responses": 0 if active is None else active.parked_responses,
            "appended_records_total": self._writer.appended_records_total,
            "appended_bytes_total": self._writer.appended_bytes_total,
            "snapshots_written_total": self._snapshots.written_total,
            "snapshots_installed_total": self._snapshots.installed_total,
            "leader_changes_total": self._leader_watch.leader_changes_total,
        }

    # ---- requests

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        """Let the controller decide on a request.

        The response comes once everything that the decision saw is committed. Where this node does
        not decide it is `NotController`, a value that is no message of the protocol.
        """
        if isinstance(request, DescribeQuorumRequest):
            return Deferred.completed(self.describe_quorum(request))
        if self._active is None:
            return Deferred.completed(NEVER_DECIDED)
        return self._active.submit(request, api_version)

    def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose process is known to be gone, if this node decides that."""
        if self._active is not None:
            self._active.fence_broker(broker_id, broker_epoch)

    # ---- the network's inputs

    def step(self, message: Message) -> None:
        """Take a message from another node of the quorum."""
        if self._core is not None:
            try:
                self._core.step(message, self._clock.monotonic_ms())
            except (OSError, CommittedRecordsError) as error:
                self.fail(error)  # whoever sent the message
                return
            self._after_input(self._core)

    def fail(self, error: Exception) -> None:
        """End `run` with an error that was met elsewhere."""
        self._failure = error
        self._wake_up()

    def ask(self, message: Request) -> Deferred[Response]:
        """Take a request from another node; what must be durable before the answer is so then."""
        assert self._core is not None, "the log is loaded"
        deferred: Deferred[Response] = Deferred()
        request_id, self._next_request_id = self._next_request_id, self._next_request_id + 1
        self._asked[request_id] = deferred
        self.step(replace(message, request_id=request_id))
        return deferred

    def peer_unreachable(self, node_id: int, *, refused: bool = True) -> None:
        """Learn that what was sent to a node is lost; refused: nobody listens there."""
        if self._core is not None:
            self._core.peer_unreachable(node_id, self._clock.monotonic_ms(), refused=refused)
            self._after_input(self._core)

    def _after_input(self, core: RaftCore) -> None:
        self._check_leadership(core)
        self._wake_up()
        self._input.set()

    def _wake_up(self) -> None:
        self._wake.set()

    def _send(self, message: Message) -> None:
        deferred = self._asked.pop(message.request_id, None)
        if deferred is not None:
            assert not isinstance(message, Request)
            deferred.complete(message)
        else:
            self._ports.peers.send(message)

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
        """Learn that a piece of the snapshot has come; False: it is not wanted any more."""
        core = self._core
        return core is not None and core.snapshots.on_progress(source, self._clock.monotonic_ms())

    def snapshot_received(self, snapshot_id: SnapshotId, data: Buffer) -> None:
        """Take the snapshot that `Peers.fetch_snapshot` asked for."""
        self._snapshots.on_received(snapshot_id, data)
        self._wake_up()

    def snapshot_failed(self) -> None:
        """Learn that the snapshot cannot be fetched; the leader is asked again."""
        if self._core is not None:
            self._core.snapshots.on_failed(self._clock.monotonic_ms())
            self._wake_up()

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
            core, active = await self._load()
            is_sole_voter = self.config.voters.is_sole_voter(self.config.node_id)
            is_started = False
            async with trio.open_nursery() as nursery:
                while True:
                    await self._work(core, active, nursery)
                    if not is_started and (active.is_active or not is_sole_voter):
                        is_started = True
                        task_status.started()
                    await self._wait(core, active)
        finally:
            self._log.close()

    async def _load(self) -> tuple[RaftCore, ActiveController]:
        log, ports = self._log, self._ports
        snapshot_id = await self._snapshots.load()
        now_ms = self._clock.monotonic_ms()
        core = RaftCore(
            node_id=self.config.node_id,
            voters=self.voters.current,
            log=log,
            epochs=EpochStarts(
                log.epoch_starts(), log.log_start_offset, log.log_end_offset, snapshot_id
            ),
            stored=ports.election_store.read(),
            config=self.config.raft,
            rng=ports.rng,
            now_ms=now_ms,
        )
        controller = Controller(
            self._controller_config,
            ports.validator,
            ports.topic_configs,
            ports.rng,
            lambda: new_uuid(ports.rng),
        )
        active = ActiveController(controller, core, self._publication, self._clock, self._wake_up)
        self._core, self._active = core, active
        return core, active

    async def _work(self, core: RaftCore, active: ActiveController, nursery: trio.Nursery) -> None:
        """Do everything that can be done now."""
        while True:
            if self._failure is not None:
                raise self._failure
            self._wake = trio.Event()
            await self._hear_sockets(core, active)
            now_ms = self._clock.monotonic_ms()
            core.tick(now_ms)
            self._check_leadership(core)
            active.on_time(now_ms)
            await self._snapshots.finish(core)
            self._snapshots.maybe_start(now_ms, nursery)
            if not core.has_ready():
                return
            await self._do_ready(core, active)
            self._check_leadership(core)

    async def _do_ready(self, core: RaftCore, active: ActiveController) -> None:
        """Rule 1."""
        ready = core.ready(self._clock.wall_ms())
        await self._persist(core, ready)
        for message in ready.messages:
            self._send(message)
        if ready.install_snapshot is not None:
            self._ports.peers.fetch_snapshot(*ready.install_snapshot)
        core.advance()
        if ready.high_watermark is not None:
            self._publication.apply(ready.high_watermark)
            active.on_committed(self.image)

    async def _persist(self, core: RaftCore, ready: Ready) -> None:
        size_bytes = await self._writer.write(ready, core.quorum)
        if ready.truncate_to is not None:
            self._publication.on_truncated(ready.truncate_to)
        self._publication.on_appended(ready.batches)
        self._snapshots.on_appended(size_bytes)

    def _check_leadership(self, core: RaftCore) -> None:
        assert self._active is not None, "the log is loaded"
        self._active.check_leadership()
        self._leader_watch.check(core, self._clock.monotonic_ms())

    async def _hear_sockets(self, core: RaftCore, active: ActiveController) -> None:
        """Let what waits in sockets be heard before a deadline is acted on.

        After this process stood still every connection has something: each takes a few turns of the
        event loop to read it and to hand it on.
        """
        late_ms = self._clock.monotonic_ms() - self._next_deadline_ms(core, active)
        if late_ms >= 0:
            for _ in range(_TURNS_IF_LATE if late_ms >= LATE_MS else 1):
                await trio.lowlevel.checkpoint()

    async def _wait(self, core: RaftCore, active: ActiveController) -> None:
        deadline_ms = min(self._next_deadline_ms(core, active), self._snapshots.next_deadline_ms)
        with trio.move_on_after(max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000):
            await self._wake.wait()

    def _next_deadline_ms(self, core: RaftCore, active: ActiveController) -> float:
        deadlines = core.next_deadline_ms(), active.next_deadline_ms()
        return min((d for d in deadlines if d is not None), default=math.inf)
