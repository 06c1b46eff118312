"""Deliberate breaches of the protocol: the simulation must catch each of them within some seeds.

Owns: `MUTATIONS`, name -> a breach that a test switches in (`mutated`). Each replaces one decision
of the production code by a plausible mistake; if no seed notices, the simulation is too kind.

Called by: the tests of the simulation and scripts/simulate --mutation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest import mock

import trio

from kraftrio.broker.api.fetch import reads as fetch_reads
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.log.cleaner.offset_map import OffsetMap
from kraftrio.broker.log.leader_epoch_cache import EpochEntry
from kraftrio.broker.log.metadata import metadata_segment
from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.broker.log.partition import follower_batches
from kraftrio.broker.log.partition.follower_batches import FollowerBatches
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.segment import batch_locator, batch_scan, batch_search
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.broker.replica.directories.full_directories import FullDirectories
from kraftrio.broker.replica.directories.unmade_logs import UnmadeLogs
from kraftrio.broker.replica.follower.fetch import FollowerFetch
from kraftrio.broker.replica.follower.partition import FollowedPartition
from kraftrio.broker.replica.led_partitions import LedPartitions
from kraftrio.broker.replica.record_deletions import RecordDeletions
from kraftrio.broker.replica.state.isr import Isr
from kraftrio.broker.replica.state.partition_state import PartitionState, Role
from kraftrio.clients.consumer.positions import Positions
from kraftrio.kraft_meta.controller.partition_change import PartitionChange
from kraftrio.kraft_meta.quorum import log_batches
from kraftrio.kraft_meta.raft.elections import Elections
from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.quorum_state import Leader, QuorumState
from kraftrio.kraft_meta.raft.values import SnapshotId
from kraftrio.kraft_meta.raft.voter_memory import VoterMemory
from kraftrio.testing.simulation.network import LinkQuality
from kraftrio.wire.errors import CorruptBatchError, ErrorCode
from kraftrio.wire.records.batch import iter_headers
from tests.sim.rights_mutations import RIGHTS_MUTATIONS
from tests.sim.transaction_mutations import TRANSACTION_MUTATIONS

Patch = tuple[Any, str, Any]


def _vote_without_persisting() -> list[Patch]:
    def write(self: QuorumStateFile, state: object, voter_ids: object) -> None:
        return None

    return [(QuorumStateFile, "write", write)]


def _vote_twice_in_an_epoch() -> list[Patch]:
    original = Elections._may_grant

    def may_grant(self: Any, vote: Any) -> bool:
        voted_id, self._quorum.voted_id = self._quorum.voted_id, vote.source
        granted = original(self, vote)
        self._quorum.voted_id = voted_id
        return granted

    def grant_vote(self: QuorumState, candidate_id: int) -> None:
        self.voted_id = candidate_id

    return [(Elections, "_may_grant", may_grant), (QuorumState, "grant_vote", grant_vote)]


def _emptied_broker_makes_its_logs() -> list[Patch]:
    return [(UnmadeLogs, "_is_lost", lambda *_arguments: False)]


def _quorum_believes_a_wiped_voter() -> list[Patch]:
    original = VoterMemory.__init__

    def init(self: VoterMemory, node_id: int, voters: Any, *, is_proven: bool) -> None:
        original(self, node_id, voters, is_proven=True)

    def votes_needed(self: VoterMemory, *, has_nothing: bool) -> int:
        return self._majority

    return [(VoterMemory, "__init__", init), (VoterMemory, "votes_needed", votes_needed)]


def _vote_for_a_shorter_log() -> list[Patch]:
    original = Elections._may_grant

    def may_grant(self: Any, vote: Any) -> bool:
        end = self._state.log.end
        with mock.patch.object(type(vote), "last_offset_and_epoch", end):
            return original(self, vote)

    return [(Elections, "_may_grant", may_grant)]


def _high_watermark_of_a_stale_isr() -> list[Patch]:
    original = Isr._find_maximal

    def find_maximal(self: Isr) -> None:
        before = self.maximal
        original(self)
        if before and self.committed:
            self.maximal = before  # who joined since does not count

    return [
        (Isr, "_find_maximal", find_maximal),
        (PartitionState, "advance_high_watermark", _advance_by(lambda s: s.isr.maximal)),
    ]


def _progress_of_another_leader_epoch() -> list[Patch]:
    original = PartitionState.apply

    def apply(self: PartitionState, partition: Any, log_end_offset: int, now_ms: float = 0) -> bool:
        known = self.followers._progress
        begun = original(self, partition, log_end_offset, now_ms)
        progress = self.followers._progress
        for replica in known.keys() & progress.keys():
            progress[replica] = known[replica]
        return begun

    return [(PartitionState, "apply", apply)]


def _leader_stays_on_a_full_disk() -> list[Patch]:
    return [(PartitionState, "propose_resignation", lambda self: None)]


def _follower_joins_from_a_full_disk() -> list[Patch]:
    return [(FullDirectories, "_is_full", lambda self, topic_partition: False)]


def _high_watermark_without_the_maximal_isr() -> list[Patch]:
    return [(PartitionState, "advance_high_watermark", _advance_by(lambda s: s.isr))]


def _high_watermark_of_the_leader_alone() -> list[Patch]:
    return [(PartitionState, "advance_high_watermark", _advance_by(lambda s: ()))]


def _advance_by(members: Callable[[PartitionState], Any]) -> Callable[..., bool]:
    """The high watermark as the smallest end among these members, nobody else."""

    def advance(self: PartitionState, now_ms: float = 0) -> bool:
        if self.role is not Role.LEADER or self.is_under_min_isr:
            return False
        progress = self.followers._progress
        ends = [p.log_end_offset for r, p in progress.items() if r in members(self)]
        offset = min([self.log_end_offset, *ends])
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    return advance


def _truncation_by_high_watermark() -> list[Patch]:
    """As before KIP-101: a follower cuts its log to its high watermark, and trusts the rest."""
    original = FollowerFetch.add

    def add(
        self: FollowerFetch, topic_partition: Any, topic_id: bytes, leader_epoch: int, log: Any
    ) -> list[Any]:
        effects = original(self, topic_partition, topic_id, leader_epoch, log)
        partition = FollowedPartition(topic_partition, topic_id, leader_epoch, log)
        known = self._partitions.get(partition.key)
        if known is not None and not effects and log.log_end_offset > log.high_watermark:
            effects = [self._truncate(known, log.high_watermark, "by the high watermark")]
        return effects

    return [(FollowerFetch, "add", add), *_no_check_of_the_last_epoch()]


def _no_check_of_the_last_epoch() -> list[Patch]:
    """The leader does not look at the epoch of a follower's last record."""
    return [(fetch_reads, "_divergence", lambda partition, part: None)]


def _epochs_are_not_kept() -> list[Patch]:
    """A leader knows no epochs of its log: each ends where the log ends."""

    def end_offset_for_epoch(self: PartitionLog, epoch: int) -> EpochEntry:
        return EpochEntry(epoch, self.log_end_offset)

    return [(PartitionLog, "end_offset_for_epoch", end_offset_for_epoch)]


def _acknowledgement_before_the_isr() -> list[Patch]:
    def when_committed(
        self: LedPartitions, topic_partition: Any, end_offset: int, deadline: Any, callback: Any
    ) -> None:
        callback(ErrorCode.NONE)

    return [(LedPartitions, "when_committed", when_committed)]


def _no_fencing_of_old_leader_epochs() -> list[Patch]:
    def check_leader(self: PartitionState, current_leader_epoch: int) -> ErrorCode:
        leads = self.role is Role.LEADER
        return ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def check_followed(self: PartitionState, leader_epoch: int) -> ErrorCode:
        follows = self.role is Role.FOLLOWER
        return ErrorCode.NONE if follows else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def check_readable(self: PartitionState, current_leader_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    original = PartitionLog.append_as_follower

    def append(self: PartitionLog, records: Any, now_ms: int, *, leader_epoch: Any = None) -> Any:
        return original(self, records, now_ms)

    return [
        (PartitionState, "check_leader", check_leader),
        (PartitionState, "check_readable", check_readable),
        (PartitionState, "check_followed", check_followed),
        (PartitionLog, "append_as_follower", append),
    ]


def _isr_shrinks_by_itself() -> list[Patch]:
    original = PartitionState.check_isr

    def check_isr(self: PartitionState, now_ms: float) -> None:
        proposal = original(self, now_ms)
        if proposal is not None:
            self.isr.settle()
            self.isr.commit(proposal.broker_ids)

    advance = _advance_by(lambda s: s.isr)
    return [
        (PartitionState, "check_isr", check_isr),
        (PartitionState, "advance_high_watermark", advance),
    ]


def _election_outside_the_isr() -> list[Patch]:
    def elect(self: PartitionChange) -> tuple[int, bool]:
        if self._is_acceptable(self._partition.leader):
            return self._partition.leader, False
        for replica in reversed(self.replicas):
            if self._is_acceptable(replica):
                self.isr = tuple({*self.isr, replica})
                return replica, False
        return -1, False

    return [(PartitionChange, "_elect", elect)]


def _follower_appends_anywhere() -> list[Patch]:
    """A follower writes whatever comes, at its end, whichever fetch was answered."""
    original = FollowerFetch.on_response

    def on_response(self: FollowerFetch, sent: Any, response: Any, now_ms: float) -> Any:
        for partition in self._partitions.values():
            partition.first_sent = 0
            partition.last_sent = sent.number
            partition.sent_offset = partition.log.log_end_offset
        return original(self, sent, response, now_ms)

    def check(records: Any, topic_partition: Any, **options: Any) -> FollowerBatches:
        headers = list(iter_headers(records, allow_partial=True))
        size = sum(header.size_bytes for header in headers)
        return FollowerBatches(memoryview(records)[:size], headers, [None] * len(headers))

    def append(self: PartitionLog, records: Any, now_ms: int, *, leader_epoch: Any = None) -> Any:
        found = check(records, self.topic_partition)
        return self._append_stamped(*found, now_ms) if found.headers else None

    return [
        (FollowerFetch, "on_response", on_response),
        (PartitionLog, "append_as_follower", append),
    ]


def _quorum_counts_what_is_not_synced() -> list[Patch]:
    def flush(self: MetadataLog) -> None:
        return None

    return [(MetadataLog, "flush", flush)]


def _quorum_leader_commits_alone() -> list[Patch]:
    def majority_end_offset(self: Leader, own_end_offset: int, majority: int) -> int:
        return own_end_offset

    return [(Leader, "majority_end_offset", majority_end_offset)]


def _snapshot_of_a_wrong_epoch() -> list[Patch]:
    original = EpochStarts.reset_to

    def reset_to(self: EpochStarts, snapshot_id: SnapshotId) -> None:
        original(self, SnapshotId(snapshot_id.end_offset, max(snapshot_id.epoch - 1, 0)))

    return [(EpochStarts, "reset_to", reset_to)]


def _commit_of_a_group_before_replication() -> list[Patch]:
    """A coordinator answers as soon as its records are in its own log."""
    original = CoordinatorRuntime.__init__

    def init(self: CoordinatorRuntime[Any], *arguments: Any, **options: Any) -> None:
        options["replicas"] = _Impatient(options["replicas"])
        original(self, *arguments, **options)

    return [(CoordinatorRuntime, "__init__", init)]


class _Impatient:
    """Partitions that wait for nobody."""

    def __init__(self, replicas: LedPartitions) -> None:
        self._replicas = replicas

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replicas, name)

    def when_committed(
        self, topic_partition: Any, end_offset: int, deadline_ms: Any, callback: Any
    ) -> None:
        callback(ErrorCode.NONE)


def _sequences_forgotten_at_failover() -> list[Patch]:
    original = PartitionLog.start_leader_epoch

    def start_leader_epoch(self: PartitionLog, epoch: int) -> None:
        self.producer_state.clear()
        original(self, epoch)

    return [(PartitionLog, "start_leader_epoch", start_leader_epoch)]


def _follower_does_not_check() -> list[Patch]:
    """A follower appends what its leader gives it, whatever the checksums say."""
    return [(follower_batches, "verify_crc", _believe)]


def _believe(buf: Any, header: Any) -> None:
    return None


def _recovery_does_not_check() -> list[Patch]:
    return [(batch_scan, "verify_crc", _believe)]


def _damage_ends_a_segment() -> list[Patch]:
    """Behind a batch that cannot be, a reader is sent on to the next segment."""
    original = batch_search.find_batch

    def find_batch(*arguments: Any, is_start: bool = False) -> Any:
        try:
            return original(*arguments, is_start=is_start)
        except CorruptBatchError:
            if is_start:
                raise
            return None

    return [(batch_locator, "find_batch", find_batch)]


def _metadata_is_not_checked() -> list[Patch]:
    """What is read of the metadata log is believed, by who reads it and by who is sent it."""
    return [(log_batches, "verify_crc", _believe)]


def _damaged_metadata_is_cut() -> list[Patch]:
    """A node that starts takes damage in the newest part of its metadata for a torn write."""
    return [(metadata_segment, "is_torn", lambda data, position: True)]


def _failed_sync_is_taken_as_done() -> list[Patch]:
    original = MetadataLog.flush

    def flush(self: MetadataLog) -> None:
        with suppress(OSError):
            original(self)

    return [(MetadataLog, "flush", flush)]


def _failed_sync_of_a_log_is_repeated() -> list[Patch]:
    """What a failed sync has lost is thought to be there still: the next sync will do it."""
    original = Segment.flush

    def flush(self: Segment) -> None:
        with suppress(OSError):
            original(self)

    return [(Segment, "flush", flush)]


def _deletion_before_the_followers() -> list[Patch]:
    def when_deleted(
        self: RecordDeletions, partition: Any, offset: int, timeout_ms: float, callback: Any
    ) -> None:
        callback(ErrorCode.NONE)

    return [(RecordDeletions, "when_deleted", when_deleted)]


def _compaction_drops_the_newest() -> list[Patch]:
    original = OffsetMap.get

    def get(self: OffsetMap, key: bytes) -> int:
        return original(self, key) + 1

    return [(OffsetMap, "get", get)]


def _pauses_are_slept_through() -> list[Patch]:
    """A consumer forgets a partition whose pause was over before it could wait for its end."""

    def next_look_at(self: Positions) -> float | None:
        return self._state.next_retry_at(trio.current_time())

    return [(Positions, "_next_look_at", next_look_at)]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A breach, and the options under which it is met soon (see `options.draw`)."""

    patches: Callable[[], list[Patch]]
    likely: Mapping[str, Any]


_ELECTIONS: Mapping[str, Any] = {
    "nodes": 3,
    "separate": True,
    "faults": ("kill", "isolate", "split", "one_way", "pause"),
    "victims": "controller",
    "fault_gap_s": 0.1,
    "fault_length_s": 0.2,
    "duration_s": 10.0,
    "quality": LinkQuality(latency_s=0.005, jitter_s=0.1),
    "properties": {
        "controller.quorum.election.timeout.ms": "300",
        "controller.quorum.fetch.timeout.ms": "600",
        "controller.quorum.election.backoff.max.ms": "300",
    },
    "idempotent_producers": 1,
    "plain_producers": 0,
    "weak_producers": 0,
    "readers": 0,
    "groups": 0,
    "admin_gap_s": 0.1,
}
_FAILOVERS: Mapping[str, Any] = {
    "nodes": 3,
    "faults": ("isolate", "split", "kill", "pause"),
    "fault_gap_s": 2.0,
    "fault_length_s": 5.0,
    "readers": 1,
    "properties": {
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
        "replica.lag.time.max.ms": "1000",
    },
}

_DISKS: Mapping[str, Any] = {
    **_FAILOVERS,
    "faults": ("rot", "bad_reads", "kill"),
    "fault_gap_s": 1.0,
    "fault_length_s": 1.0,
    "idempotent_producers": 2,
    "tail_cache_bytes": 0,
}

MUTATIONS: dict[str, Mutation] = {
    "vote-without-persisting": Mutation(
        _vote_without_persisting, {**_ELECTIONS, "faults": ("kill",), "fault_length_s": 0.05}
    ),
    "vote-twice-in-an-epoch": Mutation(_vote_twice_in_an_epoch, _ELECTIONS),
    "vote-for-a-shorter-log": Mutation(_vote_for_a_shorter_log, _ELECTIONS),
    "quorum-counts-what-is-not-synced": Mutation(
        _quorum_counts_what_is_not_synced,
        {
            **_ELECTIONS,
            "faults": ("power", "kill"),
            "fault_length_s": 0.5,
        },
    ),
    "emptied-broker-makes-its-logs": Mutation(_emptied_broker_makes_its_logs, _FAILOVERS),
    "quorum-believes-a-wiped-voter": Mutation(
        _quorum_believes_a_wiped_voter,
        {**_ELECTIONS, "faults": ("wipe",), "fault_length_s": 0.3},
    ),
    "quorum-leader-commits-alone": Mutation(_quorum_leader_commits_alone, _ELECTIONS),
    "snapshot-of-a-wrong-epoch": Mutation(
        _snapshot_of_a_wrong_epoch,
        {
            **_ELECTIONS,
            "fault_length_s": 2.0,
            "fault_gap_s": 0.5,
            "properties": {"metadata.log.max.record.bytes.between.snapshots": "1000"},
        },
    ),
    "high-watermark-of-a-stale-isr": Mutation(_high_watermark_of_a_stale_isr, _FAILOVERS),
    "high-watermark-without-the-maximal-isr": Mutation(
        _high_watermark_without_the_maximal_isr, _FAILOVERS
    ),
    "progress-of-another-leader-epoch": Mutation(
        _progress_of_another_leader_epoch,
        {
            "nodes": 3,
            "separate": True,
            "faults": ("skipped_epochs",),
            "fault_gap_s": 2.0,
            "duration_s": 20.0,
            "idempotent_producers": 3,
        },
    ),
    "deletion-before-the-followers": Mutation(
        _deletion_before_the_followers, {**_FAILOVERS, "uses": ("trimmed",)}
    ),
    "compaction-drops-the-newest": Mutation(
        _compaction_drops_the_newest,
        {"uses": ("table",), "properties": {"log.cleaner.backoff.ms": "300"}},
    ),
    "pauses-are-slept-through": Mutation(
        _pauses_are_slept_through,
        {
            "faults": ("fail_directory",),
            "fault_gap_s": 0.7,
            "library": ("reader",),
            "uses": (),
            "quality": LinkQuality(latency_s=0.05, jitter_s=0.05),
            "properties": {"log.dirs": "/data,/data2"},
        },
    ),
    "leader-stays-on-a-full-disk": Mutation(_leader_stays_on_a_full_disk, _FAILOVERS),
    "follower-joins-from-a-full-disk": Mutation(_follower_joins_from_a_full_disk, _FAILOVERS),
    "high-watermark-of-the-leader-alone": Mutation(_high_watermark_of_the_leader_alone, {}),
    "truncation-by-high-watermark": Mutation(_truncation_by_high_watermark, _FAILOVERS),
    "no-check-of-the-last-epoch": Mutation(_no_check_of_the_last_epoch, _FAILOVERS),
    "epochs-are-not-kept": Mutation(_epochs_are_not_kept, _FAILOVERS),
    "acknowledgement-before-the-isr": Mutation(_acknowledgement_before_the_isr, _FAILOVERS),
    "no-fencing-of-old-leader-epochs": Mutation(_no_fencing_of_old_leader_epochs, _FAILOVERS),
    "isr-shrinks-by-itself": Mutation(_isr_shrinks_by_itself, _FAILOVERS),
    "election-outside-the-isr": Mutation(_election_outside_the_isr, _FAILOVERS),
    "follower-appends-anywhere": Mutation(_follower_appends_anywhere, _FAILOVERS),
    "commit-of-a-group-before-replication": Mutation(
        _commit_of_a_group_before_replication, {**_FAILOVERS, "groups": 2, "members": 2}
    ),
    "sequences-forgotten-at-failover": Mutation(
        _sequences_forgotten_at_failover,
        {**_FAILOVERS, "faults": ("lose_answers", "kill", "stop", "isolate")},
    ),
    "follower-does-not-check": Mutation(
        _follower_does_not_check, {**_DISKS, "faults": ("bad_reads",)}
    ),
    "recovery-does-not-check": Mutation(_recovery_does_not_check, {**_DISKS, "faults": ("rot",)}),
    "damage-ends-a-segment": Mutation(
        _damage_ends_a_segment,
        {
            **_DISKS,
            "faults": ("bad_reads", "kill"),
            "readers": 2,
            "properties": {"log.roll.ms": "1000"},
        },
    ),
    "metadata-is-not-checked": Mutation(_metadata_is_not_checked, _DISKS),
    "damaged-metadata-is-cut": Mutation(
        _damaged_metadata_is_cut, {**_DISKS, "faults": ("rot",), "victims": "controller"}
    ),
    "failed-sync-is-taken-as-done": Mutation(
        _failed_sync_is_taken_as_done, {**_ELECTIONS, "faults": ("failed_sync",)}
    ),
    **{
        name: Mutation(*breach)
        for name, breach in (TRANSACTION_MUTATIONS | RIGHTS_MUTATIONS).items()
    },
    "failed-sync-of-a-log-is-repeated": Mutation(
        _failed_sync_of_a_log_is_repeated,
        {
            **_FAILOVERS,
            "faults": ("failed_sync",),
            "properties": {"log.flush.interval.messages": "5"},
        },
    ),
}


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Run with one mutation switched in; None: with the code as it is."""
    with ExitStack() as stack:
        for owner, attribute, replacement in MUTATIONS[name].patches() if name is not None else ():
            stack.enter_context(mock.patch.object(owner, attribute, replacement))
        yield
