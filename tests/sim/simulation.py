"""One simulation from its seed: cluster, clients and faults, then peace, progress and the verdict.

Owns: `simulate`, which runs the phases
1. The cluster comes up; topics are made.
2. Clients work while the nemesis breaks things.
3. The faults are over. Now everything must come right in bounded time: every partition has a leader
   and all replicas in its ISR, every producer gets its answers, every replica holds the same bytes.
4. The history is compared with the logs.

Called by: the tests and scripts/simulate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.testing.simulation.cluster import SimCluster
from kraftrio.testing.simulation.disk import BROKEN
from kraftrio.testing.simulation.world import SimulationFailure, Trace, World, describe
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.sim.admin_model import AdminModel
from tests.sim.administration import Administrator
from tests.sim.client import SimClient, client_of
from tests.sim.group_member import GroupMember
from tests.sim.guests import GuardedTopic
from tests.sim.history import History
from tests.sim.invariants import Invariants
from tests.sim.library_clients import Machine
from tests.sim.log_contents import content_of, records_of
from tests.sim.logins import as_user
from tests.sim.nemesis import Nemesis
from tests.sim.offsets_watcher import OffsetsWatcher
from tests.sim.options import WORK_LOGIN, Options, draw
from tests.sim.producers import DAMAGED_RECORDS, PartitionProducer, ProducerOptions, Reader
from tests.sim.programs import LibraryPrograms
from tests.sim.rights import GUARDED, RightsHistory
from tests.sim.topic_uses import CONFIGS, TABLE, TRIMMED, TopicUses
from tests.sim.transactional_work import TransactionalWork

# A new cluster needs each voter's vote: where links take longer than the pauses between elections,
# candidates stand in each other's way until chance decides.
START_DEADLINE_S = 90.0
PROGRESS_DEADLINE_S = 90.0
_DECIDED_S = 30.0  # the longest time-out of a transaction, and the time that ending one takes
TOPIC = "durable"
# Faults that no process dies of.
_SPARE_PROCESSES = frozenset(
    {
        "pause",
        "stop",
        "rolling",
        "isolate",
        "one_way",
        "split",
        "cut",
        "lose_answers",
        "stall",
        "slow_link",
        "slow_disk",
        "clock",
    }
)
_OFFLINE = ("log directory that is offline", "no log directory is online")
# What a node may say in an error, and a client find, because of a fault.
_EXPLAINED_BY: dict[str, tuple[str, ...]] = {
    "full_disk": ("No space left", "disk full"),
    "bad_reads": ("the leader's snapshot is damaged", "load failed", DAMAGED_RECORDS),
    "rot": ("damaged", "load failed", "cannot be cleaned", DAMAGED_RECORDS),
    "failed_sync": ("sync failed",),
    "few_files": ("Too many open files",),
    # A directory is offline where segments were being swapped, groups in it cannot be loaded.
    "no_room_now": ("No space left", *_OFFLINE, "load failed"),
    "fail_directory": (BROKEN, *_OFFLINE, "load failed"),
}


@dataclass(slots=True)
class Outcome:
    """What came of one seed."""

    seed: int
    options: Options
    trace: Trace
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    events: int = 0
    checks: int = 0
    faults: int = 0
    counts: str = ""
    failure: str | None = None
    cause: BaseException | None = field(default=None, repr=False)

    def line(self) -> str:
        """The verdict in one line."""
        verdict = "ok" if self.failure is None else f"FAILED {self.failure}"
        return (
            f"seed={self.seed} simulated={self.simulated_s:.1f}s cpu={self.cpu_s:.2f}s"
            f" events={self.events} checks={self.checks} faults={self.faults}"
            f" nodes={self.options.shape.node_count} {self.counts} digest={self.trace.digest()}"
            f" {verdict}"
        )


def simulate(
    seed: int,
    *,
    options: Options | None = None,
    sink: Callable[[str], object] | None = None,
    **draw_options: Any,
) -> Outcome:
    """Run one seed; a broken promise is in the outcome."""
    world = World(str(seed), Trace(sink))
    if options is None:
        options = draw(world.rng("options"), **draw_options)
    outcome = Outcome(seed, options, world.trace)
    for line in options.describe():
        world.note("world", "option", line)
    begin = time.process_time()
    simulation = Simulation(world, options)
    try:
        world.run(simulation.run)
    except SimulationFailure as failure:
        outcome.failure = str(failure)
        outcome.cause = failure
    except BaseExceptionGroup as group:
        outcome.failure = f"unexpected: {describe(group)}"
        outcome.cause = group
    outcome.cpu_s = time.process_time() - begin
    outcome.simulated_s = world.now_s
    outcome.events = world.event_count
    outcome.checks = simulation.check_count
    outcome.faults = simulation.fault_count
    outcome.counts = simulation.counts()
    return outcome


class Simulation:
    """See the module; one per run."""

    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.options = options
        self.history = History(self._has_old_coordinator)
        self.check_count = 0
        self.fault_count = 0
        self._rng = world.rng("simulation")
        self._topic_partitions = [TopicPartition(TOPIC, i) for i in range(options.partitions)]
        self._producers: list[PartitionProducer] = []
        self._guarded: GuardedTopic | None = None

    def counts(self) -> str:
        """Tell how much was done."""
        transactions = self._transactions.history.counts() if self.options.transactions else ""
        guarded = "" if self._guarded is None else self._guarded.counts()
        return " ".join(filter(None, (self.history.counts(), transactions, guarded)))

    async def run(self) -> None:
        """Run all phases."""
        options, world = self.options, self.world
        async with trio.open_nursery() as nursery:
            cluster = self.cluster = SimCluster(world, nursery, options.shape, options.quality)
            self._nursery = nursery
            cluster.files = options.files()
            if options.is_secured:
                cluster.secured = as_user(*WORK_LOGIN)
            for node in cluster.nodes.values():
                node.speed = options.disk
                node.disk.holes = options.holes
                node.clock.drift = options.drifts[node.node_id % len(options.drifts)]
            for fault in options.faults:
                world.tolerated += _EXPLAINED_BY.get(fault, ())
            invariants = self.invariants = Invariants(cluster)
            world.checks.append(invariants.check)
            cluster.start()
            await cluster.wait_until(cluster.all_ready, "all brokers are up", START_DEADLINE_S)
            admin = Administrator(self._client("admin"), options)
            await self._guard(partial(admin.create, TOPIC, options.partitions))
            for topic in options.uses:
                await self._guard(partial(admin.create, topic, 1, CONFIGS[topic]))
            if options.is_secured:
                await self._guard(partial(admin.create, GUARDED, 1))
                self._guarded = self._make_guarded()
            if options.client_quotas:
                await self._guard(partial(admin.limit_clients, options.client_quotas))
            self._transactions = self._make_transactions(nursery)
            if options.transactions is not None and options.transactions.version < 2:
                level = options.transactions.version
                await self._guard(partial(admin.downgrade, "transaction.version", level))
            for topic, count in self._transactions.topics.items():
                await self._guard(partial(admin.create, topic, count))
            self._watcher = OffsetsWatcher(
                self._client("watcher"), self._topic_partitions + self._uses_partitions(), TRIMMED
            )
            self._watcher.forgets_deletions = not _SPARE_PROCESSES.issuperset(options.faults)
            self._uses = self._make_uses(nursery)
            self._programs = programs = self._make_programs(nursery)
            await self._guard(partial(programs.begin, options.replication_factor))
            nemesis = Nemesis(cluster, options, self._client("nemesis"))
            async with trio.open_nursery() as faults:
                self._start_clients(nursery)
                programs.start()
                self._uses.begin(self._watcher)
                self._transactions.begin()
                for work in self._guarded.work if self._guarded is not None else ():
                    faults.start_soon(self._guard, work)
                if options.uses:
                    nursery.start_soon(self._guard, self._watcher.run)
                faults.start_soon(self._guard, nemesis.run)
                faults.start_soon(self._guard, admin.run)
                await trio.sleep(options.duration_s)
                faults.cancel_scope.cancel()
            await nemesis.heal()
            self.fault_count = nemesis.count
            await self._demand_progress(admin)
            self.check_count = invariants.check_count
            await self._stop_all(nursery)
            nursery.cancel_scope.cancel()

    def _uses_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, 0) for topic in self.options.uses if topic != TABLE]

    def _make_guarded(self) -> GuardedTopic:
        history = RightsHistory(self.cluster)
        self.world.checks.append(history.check)
        clients = self._client("security-admin"), self._client("security-writer")
        return GuardedTopic(self.cluster, history, *clients)

    def _make_uses(self, nursery: trio.Nursery) -> TopicUses:
        def start(work: Callable[[], Any]) -> None:
            nursery.start_soon(self._guard, work)

        return TopicUses(self.history, self.options.uses, self._client, start)

    def _make_transactions(self, nursery: trio.Nursery) -> TransactionalWork:
        def start(work: Callable[[], Any]) -> None:
            nursery.start_soon(self._guard, work)

        return TransactionalWork(
            self.options.transactions,
            self.world.rng("transactions"),
            self._client,
            partial(Machine, self.cluster),
            start,
            hold_back=lambda client: nursery.start_soon(self._hold_back, client),
            has_old_coordinator=self._has_old_coordinator,
            knows_time=self.options.knows_time,
        )

    def _has_old_coordinator(self) -> bool:
        """Whether a broker leads committed offsets still in an epoch that is over."""
        newest: dict[int, int] = {}  # by partition
        led: list[tuple[int, int]] = []
        for node in self.cluster.nodes.values():
            manager = node.replica_manager
            for replica in () if manager is None else manager.hosted.partitions():
                topic, index = replica.topic_partition
                epoch = replica.state.leader_epoch
                if topic == CONSUMER_OFFSETS:
                    newest[index] = max(newest.get(index, epoch), epoch)
                    if replica.state.is_leader:
                        led.append((index, epoch))
        return any(epoch < newest[index] for index, epoch in led)

    async def _hold_back(self, client: SimClient) -> None:
        """Let what a client sends to some broker arrive after a while."""
        rng, internet = self._rng, self.cluster.internet
        node, length_s = rng.choice(self.cluster.brokers), rng.choice((0.05, 0.5, 3.0))
        client.held_until_s = self.world.now_s + length_s
        internet.hang(client.name, node.name)
        await trio.sleep(length_s)
        internet.mend(client.name, node.name)

    def _make_programs(self, nursery: trio.Nursery) -> LibraryPrograms:
        def start(work: Callable[[], Any]) -> None:
            nursery.start_soon(self._guard, work)

        def end_of(tp: TopicPartition) -> int:
            logs = [] if self._out_of_sync() else self._logs(tp)
            return max((log.high_watermark for log in logs), default=-1)

        return LibraryPrograms(
            self.cluster,
            self.history,
            self.options.library,
            self._topic_partitions,
            start,
            end_of,
        )

    # -- clients --------------------------------------------------------------------------------

    def _client(self, name: str) -> SimClient:
        cluster = self.cluster
        network = cluster.client_network(name)
        return client_of(self.world, self._nursery, network, cluster.bootstrap, name)

    def _start_clients(self, nursery: trio.Nursery) -> None:
        options, rng = self.options, self._rng
        kinds = (
            [(-1, True)] * options.idempotent_producers
            + [(-1, False)] * options.plain_producers
            + [(rng.choice((0, 1)), False) for _ in range(options.weak_producers)]
        )
        for number, (acks, idempotent) in enumerate(kinds):
            producer_options = ProducerOptions(
                acks=acks,
                idempotent=idempotent,
                max_in_flight=rng.choice((1, 2, 5)) if idempotent else rng.choice((1, 5)),
                interval_s=rng.choice((0.1, 0.3, 1.0)),
                largest_batch=rng.choice((1, 3, 8)),
                padding=rng.choice((1, 30, 1000)),
                timeout_ms=rng.choice((500, 3_000, 10_000)),
            )
            client = self._client(f"p{number}")
            for tp in rng.sample(self._topic_partitions, min(2, len(self._topic_partitions))):
                producer = PartitionProducer(client, self.history, tp, producer_options)
                self._producers.append(producer)
                nursery.start_soon(self._guard, producer.run)
        for number in range(options.readers):
            client = self._client(f"r{number}")
            for tp in self._topic_partitions:
                nursery.start_soon(self._guard, Reader(client, self.history, tp).run)
        for group in range(options.groups):
            for number in range(options.members):
                is_static = options.static_members and number != 1
                member = GroupMember(
                    self._client(f"g{group}m{number}"),
                    self.history,
                    f"group{group}",
                    TOPIC,
                    range(options.partitions),
                    instance_id=f"instance{number}" if is_static else None,
                )
                nursery.start_soon(self._guard, member.run)

    async def _guard(self, work: Callable[[], Any]) -> None:
        """Run a part of the simulation itself; what it finds wrong ends the run."""
        try:
            await work()
        except SimulationFailure as failure:
            self.world.fail(failure)
            await trio.lowlevel.checkpoint()

    # -- the end --------------------------------------------------------------------------------

    async def _demand_progress(self, admin: Administrator) -> None:
        cluster = self.cluster
        await cluster.wait_until(cluster.all_ready, "all brokers are up again", PROGRESS_DEADLINE_S)
        self._producers += self._uses.producers
        for producer in self._producers:
            producer.is_stopping = True
        self._programs.stop()
        transactions = self._transactions
        transactions.stop()
        deadline_s = PROGRESS_DEADLINE_S
        await self._wait(
            lambda: "; ".join(p.describe() for p in self._producers if not p.is_done),
            "producers get their answers",
            deadline_s,
        )
        await self._wait(self._programs.unwritten, "library producers know all", deadline_s)
        await self._wait(self._out_of_sync, "all replicas are in sync", deadline_s)
        await self._wait(transactions.unfinished, "transactional processes end", deadline_s)
        await self._wait(
            lambda: transactions.undecided(self._logs), "transactions are decided", _DECIDED_S
        )
        await self._wait(self._not_equal, "replicas hold the same bytes", deadline_s)
        await self._wait(self._programs.unread, "library consumers read all", deadline_s)
        await self._wait(transactions.unread, "readers of transactions read all", deadline_s)
        await self._wait(
            lambda: self._not_administered(admin.model), "what was administered is there", 10.0
        )
        if self._guarded is not None:
            await self._guard(partial(self._guarded.finish, deadline_s))
        self.invariants.check_all()
        self._check_history()
        await self._guard(partial(transactions.check, self._logs))

    async def _wait(self, missing: Callable[[], str], what: str, deadline_s: float) -> None:
        with trio.move_on_after(deadline_s):
            while missing():  # noqa: ASYNC110
                await trio.sleep(0.1)
            return
        text = f"no progress within {deadline_s:g} s: {what}: {missing()}"
        self.world.fail(SimulationFailure(text))
        await trio.lowlevel.checkpoint()

    def _out_of_sync(self) -> str:
        """Name a partition that has no leader, or not all of its replicas in its ISR."""
        leaders = [n for n in self.cluster.controllers if n.quorum.is_active_controller]
        if len(leaders) != 1:
            return f"{len(leaders)} active controllers"
        for topic in leaders[0].quorum.image.topics_by_name.values():
            for index, partition in topic.partitions.items():
                if partition.leader < 0 or set(partition.isr) != set(partition.replicas):
                    return f"{topic.name}-{index} {partition}"
                if partition.adding_replicas or partition.removing_replicas:
                    return f"{topic.name}-{index} is being reassigned"
        return ""

    def _logs(self, topic_partition: TopicPartition) -> list[PartitionLog]:
        logs = []
        image = next(
            n for n in self.cluster.controllers if n.quorum.is_active_controller
        ).quorum.image
        partition = image.partition(*topic_partition)
        assert partition is not None
        for broker_id in (partition.leader, *partition.replicas):
            manager = self.cluster.nodes[broker_id].replica_manager
            found = None if manager is None else manager.hosted.partition(topic_partition)
            if found is not None:
                logs.append(found.log)
        return logs

    def _not_equal(self) -> str:
        """Name a partition whose replicas differ, or are not committed to their ends."""
        missing = self._out_of_sync()
        if missing:
            return missing
        used = self._uses.topic_partitions + self._transactions.topic_partitions
        for tp in self._topic_partitions + used:
            logs = self._logs(tp)
            ends = {(log.log_end_offset, log.high_watermark) for log in logs}
            if len(ends) != 1 or len(logs) < self.options.replication_factor + 1:
                return f"{tp}: ends and high watermarks {sorted(ends)} of {len(logs)}"
            end, high_watermark = ends.pop()
            if end != high_watermark:
                return f"{tp}: {high_watermark} of {end} are committed"
        return ""

    def _not_administered(self, model: AdminModel) -> str:
        """Name something that was acknowledged to an administrator and does not hold."""
        image = self._image()
        missing = "nobody leads the quorum" if image is None else model.missing(image)
        for node in self.cluster.brokers:
            manager = node.replica_manager
            for partition in () if manager is None or missing else manager.hosted.partitions():
                if partition.topic_partition.topic in model.gone():
                    return f"{node.name} has {partition.topic_partition}, which is deleted"
        return missing

    def _image(self) -> MetadataImage | None:
        for node in self.cluster.controllers:
            if node.node is not None and node.quorum.is_active_controller:
                return node.quorum.image
        return None

    def _check_history(self) -> None:
        try:
            for tp in self._topic_partitions + self._uses_partitions():
                self._check_log(tp, self._logs(tp))
            for tp in self._transactions.topic_partitions:
                _check_equal(tp, self._logs(tp))
            if TABLE in self._uses.topics:
                tp = TopicPartition(TABLE, 0)
                for log in self._logs(tp):
                    contents = [(r.key or b"", r.value) for r in records_of(content_of(log))]
                    self._uses.check_table(tp, repr(log), contents)
        except SimulationFailure as failure:
            self.world.fail(failure)

    def _check_log(self, tp: TopicPartition, logs: list[PartitionLog]) -> None:
        leader = logs[0]
        _check_equal(tp, logs)
        records = records_of(content_of(leader))
        values = [
            (record.offset, (record.value or b"").decode())
            for record in records
            if record.offset >= leader.log_start_offset
        ]
        self.history.check_log(tp, leader.log_start_offset, values)
        if tp.topic == TRIMMED:
            self._uses.check_beginning(tp, leader.log_start_offset)
        else:
            self._watcher.check_log(tp, [(record.offset, record.timestamp) for record in records])

    async def _stop_all(self, nursery: trio.Nursery) -> None:
        async with trio.open_nursery() as stopping:
            for node in self.cluster.nodes.values():
                stopping.start_soon(node.stop)


def _check_equal(tp: TopicPartition, logs: list[PartitionLog]) -> None:
    start = max(log.log_start_offset for log in logs)  # each drops what is too old by itself
    contents = [content_of(log, start) for log in logs]
    for log, content in zip(logs[1:], contents[1:], strict=True):
        if content != contents[0]:
            raise SimulationFailure(f"the replicas of {tp} differ: {log}")
