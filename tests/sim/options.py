"""What one simulation is like: every choice drawn from its seed, and printed first.

Owns: `Options` and `draw`. A swarm: a seed does not have every fault at once but some, so that
what only happens without the others is met as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from random import Random
from typing import Any

from kraftrio.testing.simulation.cluster import DiskSpeed, FileSizes, Shape
from kraftrio.testing.simulation.network import LinkQuality
from tests.sim.logins import SASL, first_users

FAULTS = (
    "kill",
    "power",
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
    "full_disk",
    "clock",
)
# Drawn apart from the others, and last: they came later, and the seeds should stay what they were.
DISK_FAULTS = ("bad_reads", "rot", "failed_sync")
_CHANCE_OF_DISK_FAULT = 0.15
# These came after those.
CALL_FAULTS = ("lying_syncs", "few_files", "no_room_now")
_CHANCE_OF_CALL_FAULT = 0.15
_CHANCE_OF_SKIPPED_EPOCHS = 0.15
_CHANCE_OF_WIPE = 0.2
_CHANCE_OF_LIBRARY = 0.25
_CHANCE_OF_USE = 0.25
_CHANCE_OF_LITTLE_MEMORY = 0.2
PROGRAMS = ("producer", "reader", "group", "topic")
_CHANCE_OF_TRANSACTIONS = 0.3
_CHANCE_OF_QUOTAS = 0.15
_CHANCE_OF_LOGINS = 0.1
WORK_LOGIN = ("work", "secret")  # of clients where all log in
_LARGEST_BATCH_BYTES = 10_000  # of what producers send here
_FELT_DRIFT = 0.001  # within the time of a simulation


@dataclass(frozen=True, slots=True)
class Transactions:
    """Who writes in transactions (see `transactional_work`).

    Attributes:
        partitions: of each of its topics.
        version: the level of the feature transaction.version.
        library: there are programs that use the library's own clients, too.
    """

    writers: int
    loops: int
    partitions: Sequence[int]
    timeouts_ms: Sequence[int]
    version: int
    library: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """See the module."""

    shape: Shape
    replication_factor: int
    min_insync_replicas: int
    partitions: int
    faults: Sequence[str]
    victims: str  # the role of the nodes that are hit more often than others; "" for none
    fault_gap_s: float
    fault_length_s: float
    duration_s: float
    idempotent_producers: int
    plain_producers: int
    weak_producers: int
    readers: int
    groups: int
    members: int
    admin_gap_s: float
    quality: LinkQuality = field(default_factory=LinkQuality)
    disk: DiskSpeed = field(default_factory=DiskSpeed)
    tail_cache_bytes: int | None = None  # of newest records in a node's memory; None: as built
    segment_bytes: int | None = None  # of logs; None: as set
    metadata_segment_bytes: int | None = None
    drifts: Sequence[float] = (0.0,)  # of the nodes' clocks: how much faster than time they run
    library: Sequence[str] = ()  # which programs use the library's own clients (see `PROGRAMS`)
    uses: Sequence[str] = ()  # what else topics are used for (`topic_uses`)
    static_members: bool = False  # of the groups, some are static ones
    holes: bool = False  # a power cut may leave some in what was not synced
    transactions: Transactions | None = None
    client_quotas: Mapping[str, float] = field(default_factory=dict)  # of each client, by key
    is_secured: bool = False  # all log in, and a guest's rights come and go (`guests`)

    def files(self) -> FileSizes:
        """What logs are cut into."""
        return FileSizes(self.tail_cache_bytes, self.segment_bytes, self.metadata_segment_bytes)

    @property
    def knows_time(self) -> bool:
        """Whether the nodes' clocks stay about right, and so agree on a time-out."""
        return "clock" not in self.faults and max(map(abs, self.drifts)) < _FELT_DRIFT

    def describe(self) -> list[str]:
        """One line per option."""
        lines = []
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name == "shape":
                value = asdict(value)
            lines.append(f"{option.name}={value}")
        return lines


def draw(
    rng: Random,
    *,
    nodes: int | None = None,
    separate: bool | None = None,
    properties: Mapping[str, str] | None = None,
    bad_disks: bool = False,
    transactional: bool = False,
    throttled: bool = False,
    secured: bool | None = None,
    **chosen: Any,
) -> Options:
    """Draw the options of one simulation.

    Args:
        bad_disks: disks have all of their faults, whatever the seed says.
        transactional: there are transactions, whatever the seed says.
        throttled: clients have quotas, whatever the seed says.
        secured: whether all log in; None: as the seed says.
        chosen: options by name that are not drawn.
    """
    options = _draw(rng, nodes, separate, properties or {})
    options = _with_disk_faults(options, rng, 1.0 if bad_disks else _CHANCE_OF_DISK_FAULT)
    options = _with_small_segments(options, rng)
    options = _with_call_faults(options, rng, 1.0 if bad_disks else _CHANCE_OF_CALL_FAULT)
    options = _with_drifts(_with_later_faults(options, rng, bad_disks, separate), rng)
    options = _with_uses(_with_library(options, rng), rng)
    options = replace(options, static_members=rng.random() < 0.4)
    options = _with_little_memory(options, rng)
    options = _with_transactions(options, rng, 1.0 if transactional else _CHANCE_OF_TRANSACTIONS)
    options = _with_quotas(options, rng, 1.0 if throttled else _CHANCE_OF_QUOTAS)
    is_drawn = rng.random() < _CHANCE_OF_LOGINS
    if is_drawn if secured is None else secured:
        options = _secured(options)
    return replace(options, **chosen)


def _draw(
    rng: Random, nodes: int | None, separate: bool | None, properties: Mapping[str, str]
) -> Options:
    node_count = rng.choice((1, 3, 3, 3, 3, 3, 4, 5))
    if nodes is not None:
        node_count = nodes
    replication_factor = min(node_count, rng.choice((1, 2, 3, 3, 3, 3)))
    min_insync_replicas = max(1, min(replication_factor - 1, rng.choice((1, 2, 2))))
    number_of_faults = rng.choice((0, 1, 2, 2, 3, 3, 4, 6, len(FAULTS)))
    faults = sorted(rng.sample(FAULTS, number_of_faults))
    slow = rng.random() < 0.15
    separate_controllers = node_count == 3 and rng.random() < 0.2
    if separate is not None:
        separate_controllers = separate
    return Options(
        shape=Shape(
            node_count,
            separate_controllers,
            {**_draw_properties(rng, replication_factor, min_insync_replicas), **properties},
        ),
        replication_factor=replication_factor,
        min_insync_replicas=min_insync_replicas,
        partitions=rng.choice((1, 2, 3, 6)),
        faults=faults,
        victims=rng.choice(("", "", "broker", "controller")),
        fault_gap_s=rng.choice((0.7, 2.0, 5.0)),
        fault_length_s=rng.choice((0.3, 2.0, 5.0, 10.0)),
        duration_s=rng.choice((10.0, 20.0, 30.0)),
        idempotent_producers=rng.choice((1, 1, 2, 4)),
        plain_producers=rng.choice((0, 0, 1, 2)),
        weak_producers=rng.choice((0, 0, 1, 2)),
        readers=rng.choice((0, 1, 1, 2)),
        groups=rng.choice((0, 1, 1, 2)),
        members=rng.choice((1, 2, 3)),
        admin_gap_s=rng.choice((1e9, 1e9, 2.0, 5.0)),
        quality=LinkQuality(
            latency_s=rng.choice((0.0001, 0.0005, 0.005)) if not slow else 0.05,
            jitter_s=rng.choice((0.0002, 0.002, 0.01)) if not slow else 0.05,
            split_chance=rng.choice((0.0, 0.02, 0.2)),
        ),
        disk=DiskSpeed(0.0002, rng.choice((0.001, 0.004, 0.02))),
    )


def _with_disk_faults(options: Options, rng: Random, chance: float) -> Options:
    more = [name for name in DISK_FAULTS if rng.random() < chance]
    if not more:
        return options
    shape = options.shape
    files = {
        "log.flush.interval.messages": rng.choice(("1", "20", "9223372036854775807")),
        "log.flush.scheduler.interval.ms": "500",
        "log.roll.ms": rng.choice(("1000", "4000", "604800000")),  # several segments, or one
    }
    shape = replace(shape, properties={**files, **shape.properties})
    return replace(
        options,
        shape=shape,
        faults=[*options.faults, *more],
        tail_cache_bytes=rng.choice((0, 0, 3_000, None)),  # disks are read the more, the less it is
    )


def _with_small_segments(options: Options, rng: Random) -> Options:
    """Every log has several segments, and its indexes more than one entry."""
    files = {
        "log.roll.ms": rng.choice(("300", "1000", "4000", "604800000")),
        "log.index.interval.bytes": rng.choice(("100", "1000", "4096")),
    }
    return replace(
        options,
        shape=replace(options.shape, properties={**files, **options.shape.properties}),
        segment_bytes=rng.choice((_LARGEST_BATCH_BYTES, 3 * _LARGEST_BATCH_BYTES)),
        metadata_segment_bytes=rng.choice((500, 2_000, 20_000)),
    )


def _with_call_faults(options: Options, rng: Random, chance: float) -> Options:
    more = [name for name in CALL_FAULTS if rng.random() < chance]
    return replace(options, faults=[*options.faults, *more], holes=rng.random() < 0.5)


def _with_later_faults(
    options: Options, rng: Random, bad_disks: bool, separate: bool | None
) -> Options:
    shape, faults = options.shape, list(options.faults)
    has_two = rng.random() < 0.25
    if has_two:
        shape = replace(shape, properties={**shape.properties, "log.dirs": "/data,/data2"})
    if bad_disks or (has_two and rng.random() < 0.5):
        faults.append("fail_directory")
    if bad_disks or rng.random() < _CHANCE_OF_WIPE:
        faults.append("wipe")
    if rng.random() < _CHANCE_OF_SKIPPED_EPOCHS and shape.node_count == 3 and separate is None:
        faults.append("skipped_epochs")
        shape = replace(shape, separate_controllers=True)
    return replace(options, shape=shape, faults=faults)


def _with_drifts(options: Options, rng: Random) -> Options:
    """Clocks of nodes that run apart: one second in a week, in an hour, or worse."""
    drift = rng.choice((0.0, 0.000_002, 0.000_3, 0.02))
    return replace(options, drifts=[round(rng.uniform(-drift, drift), 9) for _ in range(5)])


def _with_library(options: Options, rng: Random) -> Options:
    """Now and then programs that use the library's clients; they take time, so some of them."""
    if rng.random() >= _CHANCE_OF_LIBRARY:
        return options
    return replace(options, library=sorted(rng.sample(PROGRAMS, rng.choice((1, 2)))))


def _with_uses(options: Options, rng: Random) -> Options:
    """Now and then a topic that loses its beginning, and one that is compacted."""
    uses = [topic for topic in ("trimmed", "table") if rng.random() < _CHANCE_OF_USE]
    if not uses:
        return options
    maintenance = {
        "log.retention.check.interval.ms": rng.choice(("500", "3000")),
        "log.cleaner.backoff.ms": rng.choice(("300", "2000")),
        "log.cleaner.delete.retention.ms": rng.choice(("1000", "86400000")),
        "log.cleaner.min.cleanable.ratio": rng.choice(("0.1", "0.5")),
        "log.flush.start.offset.checkpoint.interval.ms": rng.choice(("500", "60000")),
    }
    shape = replace(options.shape, properties={**maintenance, **options.shape.properties})
    return replace(options, shape=shape, uses=uses)


def _with_little_memory(options: Options, rng: Random) -> Options:
    """Now and then connections have to wait for the memory of others."""
    if rng.random() >= _CHANCE_OF_LITTLE_MEMORY:
        return options
    limits = {
        "queued.max.request.bytes": "30000",
        "kraftrio.queued.max.response.bytes": rng.choice(("1", "30000")),
    }
    properties = {**limits, **options.shape.properties}
    return replace(options, shape=replace(options.shape, properties=properties))


def _with_transactions(options: Options, rng: Random, chance: float) -> Options:
    if rng.random() >= chance:
        return options
    shape = options.shape
    files = {
        "transaction.state.log.replication.factor": str(options.replication_factor),
        "transaction.state.log.min.isr": str(options.min_insync_replicas),
        "transaction.state.log.num.partitions": rng.choice(("1", "2", "4")),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": rng.choice(("200", "1000")),
    }
    partitions = [rng.choice((1, 2)), rng.choice((1, 2)), rng.choice((1, 2))]
    properties = {**files, **shape.properties}
    if options.replication_factor > 1 and options.faults:
        # As in Kafka, a follower that is away for longer may miss markers for good.
        properties["log.cleaner.delete.retention.ms"] = "86400000"
    return replace(
        options,
        shape=replace(shape, properties=properties),
        transactions=Transactions(
            writers=rng.choice((1, 2, 3)),
            loops=rng.choice((0, 1, 2)),
            partitions=partitions,
            timeouts_ms=rng.choice(((3_000,), (3_000, 6_000), (6_000,))),
            version=rng.choice((2, 2, 2, 1, 0)),
            library=rng.random() < 0.4,
        ),
    )


def _with_quotas(options: Options, rng: Random, chance: float) -> Options:
    """Now and then clients with quotas that make them wait, and give up waiting."""
    if rng.random() >= chance:
        return options
    quotas = {
        "producer_byte_rate": rng.choice((3_000.0, 10_000.0)),
        "consumer_byte_rate": rng.choice((10_000.0, 50_000.0)),
        "request_percentage": rng.choice((0.5, 5.0)),
        "controller_mutation_rate": rng.choice((0.5, 5.0)),
    }
    windows = {"quota.window.num": rng.choice(("2", "3")), "controller.quota.window.num": "3"}
    properties = {**windows, **options.shape.properties}
    return replace(
        options, shape=replace(options.shape, properties=properties), client_quotas=quotas
    )


def _secured(options: Options) -> Options:
    """Clients are super users, but for the guest."""
    rights = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:node;User:work"}
    shape = options.shape
    properties = {**SASL, **rights, **shape.properties}
    users = first_users(*WORK_LOGIN)
    return replace(
        options,
        shape=replace(shape, properties=properties, first_credentials=users),
        is_secured=True,
    )


def _draw_properties(
    rng: Random, replication_factor: int, min_insync_replicas: int
) -> dict[str, str]:
    heartbeat_ms, session_ms = rng.choice((("300", "1500"), ("500", "3000"), ("2000", "9000")))
    return {
        "offsets.topic.replication.factor": str(replication_factor),
        "offsets.topic.num.partitions": rng.choice(("1", "2", "4")),
        "min.insync.replicas": str(min_insync_replicas),
        "controller.quorum.election.timeout.ms": rng.choice(("300", "1000")),
        "controller.quorum.fetch.timeout.ms": rng.choice(("600", "2000")),
        "controller.quorum.election.backoff.max.ms": rng.choice(("300", "1000")),
        "broker.heartbeat.interval.ms": heartbeat_ms,
        "broker.session.timeout.ms": session_ms,
        "replica.lag.time.max.ms": rng.choice(("1000", "3000", "30000")),
        "replica.fetch.wait.max.ms": rng.choice(("100", "500")),
        "replica.fetch.backoff.ms": rng.choice(("100", "1000")),
        "log.segment.bytes": rng.choice(("1048576", "1048576", "4194304")),
        "metadata.log.segment.bytes": "8388608",
        "metadata.log.max.record.bytes.between.snapshots": rng.choice(
            ("2000", "20000", "20971520")
        ),
        "group.initial.rebalance.delay.ms": rng.choice(("0", "500", "3000")),
        "leader.imbalance.check.interval.seconds": rng.choice(("5", "300")),
        "log.flush.offset.checkpoint.interval.ms": rng.choice(("500", "5000", "60000")),
    }
