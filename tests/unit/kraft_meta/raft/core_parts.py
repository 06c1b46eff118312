"""The parts of a Raft core without the core, for tests of single parts."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kraftrio.kraft_meta.raft.core_state import CoreState, Outbox
from kraftrio.kraft_meta.raft.election_pace import ElectionPace
from kraftrio.kraft_meta.raft.epoch_announcements import EpochAnnouncements
from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.fetch_answers import FetchAnswers
from kraftrio.kraft_meta.raft.fetch_requests import FetchRequests
from kraftrio.kraft_meta.raft.messages import Fetch, Message
from kraftrio.kraft_meta.raft.quorum_state import (
    Candidate,
    Follower,
    Leader,
    QuorumState,
    Role,
    Unattached,
)
from kraftrio.kraft_meta.raft.raft_log import RaftLog
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.role_transitions import RoleTransitions
from kraftrio.kraft_meta.raft.snapshot_install import FetchSchedule, SnapshotInstall
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch
from kraftrio.kraft_meta.raft.voter_memory import VoterMemory
from kraftrio.kraft_meta.raft.voters import VoterSet
from tests.unit.kraft_meta.raft.raft_cluster import MemoryLog

CONFIG = RaftConfig()


@dataclass
class Parts:
    """What `RaftCore` joins, for voter 1 of three."""

    disk: MemoryLog
    state: CoreState
    schedule: FetchSchedule
    pace: ElectionPace
    answers: FetchAnswers
    snapshots: SnapshotInstall
    requests: FetchRequests
    announcements: EpochAnnouncements
    roles: RoleTransitions

    @property
    def role(self) -> Role:
        return self.state.quorum.role

    def sent(self) -> list[Message]:
        """Return what was sent since the last time."""
        return list(self.state.outbox.take())

    def lead(self) -> Leader:
        """Win the next epoch; LeaderChange is durable."""
        assert self.roles.become_prospective(0)
        self.roles.become_candidate(0)
        assert isinstance(self.role, Candidate)
        self.roles.become_leader(self.role, 0)
        self.make_durable()
        assert isinstance(self.role, Leader)
        return self.role

    def follow(self, leader_id: int = 2, epoch: int = 1) -> Follower:
        """Follow a node; the first fetch is under way."""
        self.roles.become_follower(epoch, leader_id, 0)
        self.sent()
        assert isinstance(self.role, Follower)
        return self.role

    def make_durable(self) -> None:
        """Write what is queued, as the shell does."""
        _truncate_to, batches = self.state.log.take_writes(0)
        self.disk.append(batches)
        if self.state.log.on_durable() and self.state.is_leader:
            self.answers.on_own_log_durable()

    def fetch_from(self, source: int, offset: int, *, high_watermark: int = -1) -> Fetch:
        """Return the fetch of another node whose log ends at an offset of this epoch."""
        epoch = self.state.epoch
        return Fetch(
            source=source,
            destination=1,
            epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=epoch if offset else 0,
            high_watermark=high_watermark,
            max_wait_ms=500,
        )


def parts(*, end_offset: int = 0, is_proven: bool = True) -> Parts:
    """Give the parts, with so many records of epoch 0 in the log."""
    voters = VoterSet.of_ids([1, 2, 3])
    disk = MemoryLog()
    disk.append([LogBatch(offset, 0, 0, (b"x",)) for offset in range(end_offset)])
    log = RaftLog(disk, EpochStarts([(0, 0)] if end_offset else [], 0, end_offset, None), 0, 100)
    quorum = QuorumState(1, voters, ElectionState(), Unattached(0))
    memory = VoterMemory(1, voters, is_proven=is_proven)
    state = CoreState(CONFIG, quorum, memory, log, Outbox())
    schedule = FetchSchedule(0)
    pace = ElectionPace(CONFIG, random.Random(1))
    answers = FetchAnswers(state)
    snapshots = SnapshotInstall(state, schedule)
    requests = FetchRequests(state, schedule, snapshots, random.Random(2))
    announcements = EpochAnnouncements(state)
    roles = RoleTransitions(state, pace, answers, requests, snapshots, announcements)
    return Parts(disk, state, schedule, pace, answers, snapshots, requests, announcements, roles)
