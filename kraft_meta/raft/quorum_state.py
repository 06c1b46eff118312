"""What a node is in the quorum: its state, its epoch, and the legal moves between states.

Owns: `QuorumState` (epoch, leader, vote, and the fields of the present state). Rules:
1. The epoch never goes back. Within an epoch a node votes for one candidate at most and accepts
   one leader at most; `election_state` is what must be on disk before a message says so.
2. A move that LEGAL_MOVES does not name is our bug.
3. Nothing else changes the state: raft.py decides, this file moves.

    Unattached   knows the epoch, no leader; may have voted.
    Prospective  asks whether it could win (pre-vote, KIP-996); the epoch stands still.
    Candidate    asks for votes in a new epoch (voted for itself).
    Leader       of the epoch; the only one that appends what it likes.
    Follower     of a known leader: fetches from it. Observers know no other state than
                 Follower and Unattached.
    Resigned     was the leader of this epoch and may not be again (restart, shutdown, or no
                 majority fetched from it).

Called by: raft.py alone. Protocol: KIP-595, KIP-996.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from kraftrio.kraft_meta.raft.values import NO_NODE, ElectionState
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.wire.primitives import ZERO_UUID


class State(Enum):
    """The name of a state; see the module's table."""

    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    FOLLOWER = "Follower"
    RESIGNED = "Resigned"


LEGAL_MOVES: Final[dict[State, frozenset[State]]] = {
    # A higher epoch, an election timeout, a leader heard of.
    State.UNATTACHED: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
    # A higher epoch or no majority in time; a majority; a leader heard of.
    State.PROSPECTIVE: frozenset({State.UNATTACHED, State.CANDIDATE, State.FOLLOWER}),
    # A higher epoch; no majority in time; a majority; a leader heard of.
    State.CANDIDATE: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.LEADER, State.FOLLOWER}),
    # A higher epoch (with or without its leader); shutdown or a lost majority.
    State.LEADER: frozenset({State.UNATTACHED, State.FOLLOWER, State.RESIGNED}),
    # A higher epoch; the leader is silent; a new leader.
    State.FOLLOWER: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
    # A higher epoch (with or without its leader); an election timeout.
    State.RESIGNED: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
}


OBSERVER_SESSION_TIMEOUT_MS: Final = 300_000
"""How long a leader remembers an observer that has stopped fetching."""


@dataclass(slots=True)
class Unattached:
    """Waits for a leader to announce itself, or for its own election timeout."""

    election_deadline_ms: float
    state: Final[State] = field(default=State.UNATTACHED, init=False)


@dataclass(slots=True)
class Prospective:
    """Collects pre-votes; `unreachable` are voters that cannot be asked now."""

    election_deadline_ms: float
    votes: dict[int, bool] = field(default_factory=dict)
    unreachable: set[int] = field(default_factory=set)
    is_lost: bool = False
    state: Final[State] = field(default=State.PROSPECTIVE, init=False)


@dataclass(slots=True)
class Candidate:
    """Collects votes; `votes` starts with its own."""

    election_deadline_ms: float
    votes: dict[int, bool] = field(default_factory=dict)
    unreachable: set[int] = field(default_factory=set)
    is_lost: bool = False
    state: Final[State] = field(default=State.CANDIDATE, init=False)


@dataclass(slots=True)
class ReplicaProgress:
    """What the leader knows of a replica. `log_end_offset` is -1 until its first valid fetch."""

    log_end_offset: int = -1
    last_fetch_ms: float = -1
    last_caught_up_ms: float = -1
    # The leader's log end at the previous fetch: reaching it means having been caught up then.
    leader_end_at_last_fetch: int = -1
    directory_id: bytes = ZERO_UUID


@dataclass(slots=True)
class Leader:
    """Leads the epoch; `progress` holds the other voters, `observers` all others that fetch."""

    epoch_start_offset: int
    check_quorum_deadline_ms: float
    begin_epoch_retry_ms: float
    progress: dict[int, ReplicaProgress]
    observers: dict[int, ReplicaProgress] = field(default_factory=dict)
    acknowledged: dict[int, bool] = field(default_factory=dict)
    state: Final[State] = field(default=State.LEADER, init=False)

    def record_fetch(
        self,
        source: int,
        fetch_offset: int | None,
        own_end_offset: int,
        now_ms: float,
        directory_id: bytes = ZERO_UUID,
    ) -> None:
        """Take a replica's fetch; fetch_offset is None when its log is not a prefix of this one."""
        progress = self.progress.get(source)
        if progress is None:
            if source < 0:
                return  # a reader without identity
            if source not in self.observers:
                self.forget_observers_before(now_ms - OBSERVER_SESSION_TIMEOUT_MS)
            progress = self.observers.setdefault(source, ReplicaProgress())
            progress.directory_id = directory_id
        if fetch_offset is not None:
            if fetch_offset >= own_end_offset:
                progress.last_caught_up_ms = now_ms
            elif fetch_offset >= progress.leader_end_at_last_fetch >= 0:
                progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
            progress.log_end_offset = fetch_offset
        progress.last_fetch_ms = now_ms
        progress.leader_end_at_last_fetch = own_end_offset

    def record_contact(self, source: int, now_ms: float) -> None:
        """Record that a replica is fetching a snapshot."""
        progress = self.progress.get(source) or self.observers.get(source)
        if progress is not None:
            progress.last_fetch_ms = now_ms

    def forget_observers_before(self, time_ms: float) -> None:
        """Forget the observers that have not fetched since."""
        for observer in [o for o, p in self.observers.items() if p.last_fetch_ms < time_ms]:
            del self.observers[observer]

    def majority_contact_ms(self, majority: int) -> float:
        """Return since when a majority (this leader included) has been in contact; -1 never."""
        if majority == 1:
            return -1
        times = sorted((p.last_fetch_ms for p in self.progress.values()), reverse=True)
        return times[majority - 2]

    def majority_end_offset(self, own_end_offset: int, majority: int) -> int:
        """Return the offset up to which a majority, this leader included, has the log."""
        ends = [progress.log_end_offset for progress in self.progress.values()]
        ends.append(own_end_offset)
        ends.sort(reverse=True)
        return ends[majority - 1]


@dataclass(slots=True)
class Follower:
    """Follows `leader_id`; silent leaders are given up at fetch_deadline_ms.

    `has_fetched`: the leader has answered, and nothing has shown since that it is gone.
    """

    leader_id: int
    fetch_deadline_ms: float
    has_fetched: bool = False
    is_suspected: bool = False
    state: Final[State] = field(default=State.FOLLOWER, init=False)

    def on_leader_answer(self, fetch_deadline_ms: float) -> None:
        """Take the leader's answer for its sign of life."""
        self.fetch_deadline_ms = fetch_deadline_ms
        self.has_fetched = True
        self.is_suspected = False


@dataclass(slots=True)
class Resigned:
    """Was the leader; lets others try first, and notifies those that have not confirmed it."""

    election_deadline_ms: float
    preferred_successors: tuple[int, ...]
    unconfirmed: set[int]
    end_epoch_retry_ms: float
    unreachable: set[int] = field(default_factory=set)
    state: Final[State] = field(default=State.RESIGNED, init=False)


Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned


class QuorumState:
    """The present role, with the epoch, the leader and the vote of that epoch."""

    __slots__ = ("epoch", "leader_id", "node_id", "role", "voted_id", "voters")

    def __init__(
        self, node_id: int, voters: VoterSet, stored: ElectionState, role: Unattached
    ) -> None:
        self.node_id = node_id
        self.voters = voters
        self.epoch = stored.epoch
        self.leader_id = NO_NODE
        self.voted_id = stored.voted_id
        self.role: Role = role

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def other_voters(self) -> list[int]:
        return self.voters.others(self.node_id)

    @property
    def election_state(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted_id)

    def become_unattached(self, epoch: int, election_deadline_ms: float) -> None:
        """Forget the leader; a new epoch starts without a vote."""
        assert epoch >= self.epoch
        if epoch > self.epoch:
            self.voted_id = NO_NODE
            self.epoch = epoch
        self.leader_id = NO_NODE
        self._move(Unattached(election_deadline_ms))

    def grant_vote(self, candidate_id: int) -> None:
        """Remember the one vote of this epoch."""
        assert self.role.state in (State.UNATTACHED, State.PROSPECTIVE)
        assert self.voted_id in (NO_NODE, candidate_id)
        assert self.leader_id == NO_NODE
        self.voted_id = candidate_id

    def become_prospective(self, election_deadline_ms: float) -> None:
        """Ask for pre-votes in the same epoch."""
        assert self.is_voter
        self.leader_id = NO_NODE
        self._move(Prospective(election_deadline_ms, {self.node_id: True}))

    def become_candidate(self, election_deadline_ms: float) -> None:
        """Open a new epoch with a vote for itself."""
        assert self.is_voter
        self.epoch += 1
        self.leader_id = NO_NODE
        self.voted_id = self.node_id
        self._move(Candidate(election_deadline_ms, {self.node_id: True}))

    def become_leader(self, role: Leader) -> None:
        """Lead the epoch that a majority voted for."""
        self.leader_id = self.node_id
        self._move(role)

    def become_follower(self, epoch: int, leader_id: int, fetch_deadline_ms: float) -> None:
        """Follow the leader of an epoch."""
        assert epoch >= self.epoch
        assert leader_id not in (NO_NODE, self.node_id)
        if epoch > self.epoch:
            self.voted_id = NO_NODE
            self.epoch = epoch
        else:
            assert self.leader_id in (NO_NODE, leader_id), "one leader per epoch"
            assert self.role.state not in (State.LEADER, State.RESIGNED)
        self.leader_id = leader_id
        self._move(Follower(leader_id, fetch_deadline_ms))

    def become_resigned(self, role: Resigned) -> None:
        """Give up leading; the epoch's leader stays known, so no other is accepted in it."""
        self.leader_id = self.node_id
        self._move(role)

    def restore(self, role: Resigned | Follower | Unattached, leader_id: int) -> None:
        """Take the state that the stored election state asks for; only right after loading."""
        self.leader_id = leader_id
        self.role = role

    def _move(self, role: Role) -> None:
        moves = LEGAL_MOVES[self.role.state]
        assert role.state in moves, f"illegal move {self.role.state} -> {role.state}"
        self.role = role
