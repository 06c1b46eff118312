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
`ActiveController` (decisions while this node leads), `PeerMessages` (the other nodes of the
quorum), `MetadataSnapshots`, `LeaderWatch` (who leads, for others and for the log),
`LeadershipTransfer` (the end of leading), `CurrentVoters`.

Called by: node.py (`run`, `leadership_transfer`), handlers and the controller client (`submit`),
everyone who follows the metadata (`subscribe`, `image`), the quorum's network: api/quorum.py and
quorum_peers.py (`messages`, `snapshots`). Protocol: KIP-595, KIP-631, KIP-630.
"""

from __future__ import annotations

import math
from typing import Any

import trio

from kraftrio.base.deferred import Deferred
from kraftrio.base.statistics import Statistics
from kraftrio.kraft_meta.controller.cluster_control import LATE_MS
from kraftrio.kraft_meta.controller.control import ControllerConfig
from kraftrio.kraft_meta.controller.controller import Controller
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.quorum.active_controller import NEVER_DECIDED, ActiveController, new_uuid
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity
from kraftrio.kraft_meta.quorum.description import describe_quorum
from kraftrio.kraft_meta.quorum.leader_watch import LeaderCallback, LeaderWatch
from kraftrio.kraft_meta.quorum.leadership_transfer import LeadershipTransfer
from kraftrio.kraft_meta.quorum.peer_messages import PeerMessages
from kraftrio.kraft_meta.quorum.publication import MetadataPublication, Subscriber
from kraftrio.kraft_meta.quorum.ready_writer import ReadyWriter
from kraftrio.kraft_meta.quorum.settings import QuorumConfig, QuorumPorts
from kraftrio.kraft_meta.quorum.snapshots import MetadataSnapshots
from kraftrio.kraft_meta.quorum.voter_changes import CurrentVoters
from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.ready import Ready
from kraftrio.kraft_meta.raft.values import NO_NODE
from kraftrio.wire.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse

_TURNS_IF_LATE = 8  # of the event loop, so that what waits in sockets is read


class QuorumService:
    """See the module; one per node.

    Attributes:
        config: who is in the quorum.
        identity: which cluster this is, as far as is known.
        voters: who votes; what keeps connections to the voters subscribes.
        messages: what this node and the others of the quorum say to each other.
        snapshots: of the metadata, out and in.
        leadership_transfer: how this node stops leading.
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
        self._writer = ReadyWriter(ports.log, ports.election_store, ports.run_in_thread)
        self._publication = MetadataPublication(ports.log, self.identity)
        self.snapshots = MetadataSnapshots(
            config, ports.log, self._publication, ports.clock, ports.run_in_thread, self._wake_up
        )
        self.messages = PeerMessages(
            config.node_id, ports.peers, ports.clock, self._on_input, self.fail
        )
        self.leadership_transfer = LeadershipTransfer(ports.clock, self._on_input)
        self._leader_watch = LeaderWatch()
        self._core: RaftCore | None = None
        self._active: ActiveController | None = None  # once the log is loaded
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
            "snapshots_written_total": self.snapshots.written_total,
            "snapshots_installed_total": self.snapshots.installed_total,
            "leader_changes_total": self._leader_watch.leader_changes_total,
        }

    # ---- requests

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        """Let the controller decide on a request.

        The response comes once everything that the decision saw is committed. Where this node does
        not decide it is `NotController`, a value that is not a message of the protocol.
        """
        if isinstance(request, DescribeQuorumRequest):
            return Deferred.completed(self.describe_quorum(request))
        if self._active is None:
            return Deferred.completed(NEVER_DECIDED)
        return self._active.submit(request, api_version)

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        """The same for a client whose changes are to be counted."""
        if self._active is None:
            return Deferred.completed(NEVER_DECIDED)
        return self._active.submit(request, api_version, sender)

    def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose process is known to be gone, if this node decides that."""
        if self._active is not None:
            self._active.fence_broker(broker_id, broker_epoch)

    # ---- what wakes the task

    def fail(self, error: Exception) -> None:
        """End `run` with an error that was met elsewhere."""
        self._failure = error
        self._wake_up()

    def _on_input(self) -> None:
        """Act on what the core has taken in."""
        self._check_leadership()
        self._wake_up()
        self.leadership_transfer.notice()

    def _wake_up(self) -> None:
        self._wake.set()

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
        snapshot_id = await self.snapshots.load()
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
            self._clock.wall_ms,
        )
        active = ActiveController(controller, core, self._publication, self._clock, self._wake_up)
        self._core, self._active = core, active
        self.messages.start(core)
        self.leadership_transfer.start(core)
        self.snapshots.start(core)
        return core, active

    async def _work(self, core: RaftCore, active: ActiveController, nursery: trio.Nursery) -> None:
        """Do everything that can be done now."""
        while True:
            if self._failure is not None:
                raise self._failure
            self._wake = trio.Event()
            await self._let_sockets_be_read(core, active)
            now_ms = self._clock.monotonic_ms()
            core.tick(now_ms)
            self._check_leadership()
            active.on_time(now_ms)
            await self.snapshots.finish()
            self.snapshots.maybe_start(now_ms, nursery)
            if not core.has_ready():
                return
            await self._do_ready(core, active)
            self._check_leadership()

    async def _do_ready(self, core: RaftCore, active: ActiveController) -> None:
        """Rule 1."""
        ready = core.ready(self._clock.wall_ms())
        await self._persist(core, ready)
        for message in ready.messages:
            self.messages.send(message)
        if ready.install_snapshot is not None:
            self._ports.peers.fetch_snapshot(*ready.install_snapshot)
        core.advance()
        if ready.high_watermark is not None:
            self._publication.apply(ready.high_watermark)
            active.on_committed(self.image)

    async def _persist(self, core: RaftCore, ready: Ready) -> None:
        size_bytes = await self._writer.write(ready, core.quorum, has_been_led=core.has_met_leader)
        if ready.truncate_to is not None:
            self._publication.on_truncated(ready.truncate_to)
        self._publication.on_appended(ready.batches)
        self.snapshots.on_appended(size_bytes)

    def _check_leadership(self) -> None:
        assert self._core is not None and self._active is not None, "the log is loaded"
        self._active.check_leadership()
        self._leader_watch.check(self._core, self._clock.monotonic_ms())

    async def _let_sockets_be_read(self, core: RaftCore, active: ActiveController) -> None:
        """Let what waits in sockets be read before a deadline is acted on.

        After this process stood still every connection has something: each takes a few turns of the
        event loop to read it and to hand it on.
        """
        late_ms = self._clock.monotonic_ms() - self._next_deadline_ms(core, active)
        if late_ms >= 0:
            for _ in range(_TURNS_IF_LATE if late_ms >= LATE_MS else 1):
                await trio.lowlevel.checkpoint()

    async def _wait(self, core: RaftCore, active: ActiveController) -> None:
        deadline_ms = min(self._next_deadline_ms(core, active), self.snapshots.next_deadline_ms)
        with trio.move_on_after(max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000):
            await self._wake.wait()

    def _next_deadline_ms(self, core: RaftCore, active: ActiveController) -> float:
        deadlines = core.next_deadline_ms(), active.next_deadline_ms()
        return min((d for d in deadlines if d is not None), default=math.inf)
