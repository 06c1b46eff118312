"""One partition replica's role, leader epoch and high watermark, and what ISR it asks for; sans-IO.

The only owner of the partition's high watermark; the log is given each new value.  Its parts are
`isr` (the ISR and the proposal in flight) and `followers` (their progress).

The leader's rules
1. The high watermark is the smallest log end offset among the leader, the maximal ISR, and the
   followers that are caught up and may join the ISR. It never goes back within a leadership, and
   stands still while the ISR is smaller than `min.insync.replicas` (KIP-966).  A follower's is its
   leader's, as far as its own log goes; only a follower's log is ever truncated, and takes its
   high watermark along.
2. A proposal that is not decided yet counts as taken and as refused at once: see the maximal ISR
   in `isr` (KIP-497).
3. A follower joins when it has the high watermark and the start of this leader epoch, and the
   broker that fetched is the one registered now (KIP-903). It leaves when it was not caught up for
   `replica.lag.time.max.ms`.
4. A leader that cannot write may propose an ISR without itself: the controller makes one of it the
   leader. Until the metadata says so it leads as before.
5. One proposal at a time. What the controller decided comes by its answer or by the metadata,
   whichever is first; what has an older partition epoch is out of date.
6. An append with acks=all is refused while the ISR is smaller than `min.insync.replicas`, or than
   all replicas where the topic has fewer.
7. A request that names a leader epoch is served only if it is ours: an older one is fenced
   (FENCED_LEADER_EPOCH), a newer one means that this node does not know it yet
   (UNKNOWN_LEADER_EPOCH; KIP-320).

A leader knows nothing of its followers until they fetch in its leader epoch, also where it led in
the one before, as far as it knows: the metadata may hold several changes at once, and followers
may have truncated their logs for a leader in between that this node never knew.

Called by what else is in `replica/`, without an await between a check and its act; the caller
carries out the `Effects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from kraftrio.broker.replica.state.followers import (
    UNKNOWN_OFFSET,
    Followers,
    KnownBrokers,
)
from kraftrio.broker.replica.state.isr import Isr, IsrAnswer, IsrMember, IsrProposal
from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.wire.errors import ErrorCode

# The controller did not apply the proposal, and says so: what was committed before still holds.
_NOT_APPLIED = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)

# Our view is out of date, and nothing shows what became of the proposal: the metadata will.
_OUT_OF_DATE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


class Role(Enum):
    """What this broker is for the partition.

    NONE: no metadata yet, or the partition is not hosted here any more.
    LEADER: serves clients and followers.
    FOLLOWER: another replica leads, or none does.
    OFFLINE: the log's directory has failed; only its removal ends that.
    """

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


_SERVING = frozenset({Role.LEADER, Role.FOLLOWER})

MOVES: Mapping[Role, frozenset[Role]] = MappingProxyType(
    {
        Role.NONE: _SERVING | {Role.NONE, Role.OFFLINE},
        Role.LEADER: _SERVING | {Role.NONE, Role.OFFLINE},
        Role.FOLLOWER: _SERVING | {Role.NONE, Role.OFFLINE},
        Role.OFFLINE: frozenset({Role.OFFLINE, Role.NONE}),
    }
)
"""Where each role may move; a new leadership is a move from LEADER to LEADER."""


class Effects(NamedTuple):
    """What the owner is to do after a call."""

    high_watermark_advanced: bool = False
    proposal: IsrProposal | None = None
    send_later: bool = False  # the proposal failed for no fault of its own: after a pause


NO_EFFECTS = Effects()
_ADVANCED = Effects(high_watermark_advanced=True)


class PartitionState:
    """The replication state of one replica on this broker.

    Args:
        high_watermark: what the log knows (a restart: from its checkpoint).
        brokers: asked only where followers take part.

    Attributes:
        isr: empty unless this replica leads, as are the followers.
    """

    __slots__ = (
        "_brokers",
        "broker_id",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "is_sole_replica",
        "isr",
        "leader_epoch",
        "leader_id",
        "log_end_offset",
        "min_insync_replicas",
        "partition_epoch",
        "replicas",
        "role",
    )

    def __init__(
        self,
        broker_id: int,
        high_watermark: int,
        brokers: KnownBrokers,
        *,
        min_insync_replicas: int = 1,
        lag_time_max_ms: float = 30_000,
    ) -> None:
        self.broker_id = broker_id
        self.high_watermark = high_watermark
        self.min_insync_replicas = min_insync_replicas
        self._brokers = brokers
        self.role = Role.NONE
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.log_end_offset = UNKNOWN_OFFSET  # the leader's own, kept where there are followers
        self.epoch_start_offset = UNKNOWN_OFFSET
        self.followers = Followers(brokers, lag_time_max_ms)
        self.isr = Isr()
        # The only replica leads: what is appended is committed (the hot path of one node).
        self.is_sole_replica = False

    # -- what the controller decided ------------------------------------------------------------

    def apply(self, partition: PartitionImage, log_end_offset: int, now_ms: float = 0) -> bool:
        """Take over what the controller decided.

        The caller then asks `advance_high_watermark`: a smaller ISR may let it go on.

        Returns:
            True when a leader epoch has begun here: a leader's log notes where it starts, a
            follower has to start fetching from the new leader.
        """
        if partition.partition_epoch < self.partition_epoch:
            return False  # older than the answer to our own proposal
        if self.role is Role.OFFLINE:
            return False
        assert partition.leader_epoch >= self.leader_epoch, "a leader epoch never goes back"
        was_leader = self.role is Role.LEADER
        leads = partition.leader == self.broker_id
        new_epoch = partition.leader_epoch > self.leader_epoch or was_leader is not leads
        if partition.partition_epoch > self.partition_epoch or new_epoch:
            self.isr.settle()  # decided, or out of date
        self.leader_id = partition.leader
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.replicas = partition.replicas
        self.log_end_offset = log_end_offset
        self._move(Role.LEADER if leads else Role.FOLLOWER)
        if not leads:
            self._forget_followers()
            return new_epoch
        self.isr.commit(partition.isr)
        others = [replica for replica in partition.replicas if replica != self.broker_id]
        if new_epoch:
            self.epoch_start_offset = log_end_offset
            self.followers.begin(others, partition.isr, now_ms)
        else:
            self.followers.change(others)
        return new_epoch

    def resign(self) -> None:
        """The replica is removed from this broker, and serves no requests any more."""
        self._move(Role.NONE)
        self._forget_followers()

    def go_offline(self) -> None:
        """The log cannot be used any more."""
        self._move(Role.OFFLINE)
        self._forget_followers()

    def _move(self, role: Role) -> None:
        assert role in MOVES[self.role], f"{self.role} does not become {role}"
        self.role = role
        self.is_sole_replica = role is Role.LEADER and self.replicas == (self.broker_id,)

    def _forget_followers(self) -> None:
        self.followers.clear()
        self.isr.clear()
        self.epoch_start_offset = UNKNOWN_OFFSET

    # -- checks ---------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr.committed) < min(self.min_insync_replicas, len(self.replicas))

    @property
    def offset_is_behind_epoch(self) -> bool:
        """Is the high watermark not yet where this leadership began?  A consumer that got a
        later one from the previous leader would see it go back.
        """
        return self.high_watermark < self.epoch_start_offset

    def members_behind(self, end_offset: int) -> list[int]:
        """The members of the maximal ISR that do not have everything before an offset."""
        others = sorted(self.isr.maximal - {self.broker_id})
        return [
            replica_id
            for replica_id in others
            if (progress := self.followers.get(replica_id)) is None
            or progress.log_end_offset < end_offset
        ]

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """May a request that names this leader epoch (-1: none) be served here?"""
        if self.role is not Role.LEADER:
            if self.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if current_leader_epoch < 0:  # as what comes from this broker itself
            return ErrorCode.NONE
        return _check_epoch(current_leader_epoch, self.leader_epoch)

    def check_readable(self, current_leader_epoch: int) -> ErrorCode:
        """May a consumer that names this leader epoch (-1: none) read here, leader or not?"""
        if self.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return _check_epoch(current_leader_epoch, self.leader_epoch)

    def check_followed(self, leader_epoch: int) -> ErrorCode:
        """May what was fetched in this leader epoch be written here?"""
        if self.role is not Role.FOLLOWER:
            if self.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return _check_epoch(leader_epoch, self.leader_epoch)

    def check_append(self, required_acks: int) -> ErrorCode:
        """May a batch with these acks be appended here (rule 6)?"""
        if self.is_sole_replica:
            return ErrorCode.NONE
        if self.role is not Role.LEADER:
            return self.check_leader(-1)
        if required_acks == -1 and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def check_committed(self) -> ErrorCode:
        """May what the high watermark has passed be acknowledged (acks=all)?"""
        if self.role is not Role.LEADER:
            return self.check_leader(-1)
        if len(self.isr.maximal) < min(self.min_insync_replicas, len(self.replicas)):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> ErrorCode:
        """May this broker fetch as a follower?  The leader epoch is checked before."""
        if replica_id in self.followers:
            return ErrorCode.NONE
        if current_leader_epoch == self.leader_epoch:
            # A reassignment raises no leader epoch, so the follower may know of it before we do.
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # -- progress -------------------------------------------------------------------------------

    def on_sole_append(self, log_end_offset: int) -> None:
        """The log of the only replica grew; all of it is committed."""
        self.high_watermark = log_end_offset

    def on_append(self, log_end_offset: int, now_ms: float = 0) -> bool:
        """The leader's log grew; True when the high watermark advanced."""
        self.log_end_offset = log_end_offset
        if len(self.isr.maximal) > 1:
            return False  # no follower has the new records, and each of the ISR holds us back
        return self.advance_high_watermark(now_ms)

    def on_follower_fetch(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        log_end_offset: int,
        now_ms: float,
    ) -> Effects:
        """A follower fetches from `fetch_offset` on, so it has everything before.

        Args:
            broker_epoch: the follower's own, -1 if its fetch had none.
            log_end_offset: ours.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER from a broker that has restarted since.
        """
        assert self.role is Role.LEADER
        has_moved = self.followers.on_fetch(
            replica_id, broker_epoch, fetch_offset, log_start_offset, log_end_offset, now_ms
        )
        self.log_end_offset = log_end_offset
        proposal = None
        if replica_id not in self.isr.maximal:
            proposal = self._propose_expansion((replica_id,))
        if has_moved and self.advance_high_watermark(now_ms):
            return _ADVANCED if proposal is None else Effects(True, proposal)
        return NO_EFFECTS if proposal is None else Effects(False, proposal)

    def advance_high_watermark(self, now_ms: float = 0) -> bool:
        """Apply rule 1; True when the high watermark advanced."""
        if self.role is not Role.LEADER or self.is_under_min_isr:
            return False
        offset = self.followers.shared_end_offset(self.isr.maximal, self.log_end_offset, now_ms)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def on_leader_answer(
        self, leader_high_watermark: int, log_start_offset: int, log_end_offset: int
    ) -> bool:
        """This follower has appended what its leader answered; True: the high watermark advanced.

        Args:
            log_start_offset: of our own log, as it is now.
            log_end_offset: the same.
        """
        before = self.high_watermark
        self.on_truncation(log_start_offset, log_end_offset)
        offset = min(leader_high_watermark, log_end_offset)
        self.high_watermark = max(self.high_watermark, offset)
        return self.high_watermark > before

    def on_truncation(self, log_start_offset: int, log_end_offset: int) -> None:
        """This follower's log was truncated, or restarted at another offset."""
        self.high_watermark = max(min(self.high_watermark, log_end_offset), log_start_offset)

    # -- the ISR --------------------------------------------------------------------------------

    def check_isr(self, now_ms: float) -> IsrProposal | None:
        """Propose an ISR without the followers that are not caught up any more (rule 3)."""
        isr, end_offset = self.isr.committed, self.log_end_offset
        if self.role is not Role.LEADER or self.isr.pending is not None or len(isr) < 2:
            return None
        kept = tuple(
            replica
            for replica in isr
            if replica == self.broker_id or not self.followers.is_late(replica, end_offset, now_ms)
        )
        return None if len(kept) == len(isr) else self._propose(kept)

    def propose_resignation(self) -> IsrProposal | None:
        """Propose the ISR without this leader, whose disk is full, so that another one leads.

        Only if all the others have what it has, so that nothing acknowledged with acks=1 is lost,
        and are enough for acks=all: else the partition would be no better off.
        """
        if self.role is not Role.LEADER or self.isr.pending is not None:
            return None
        others = tuple(replica for replica in self.isr.committed if replica != self.broker_id)
        if not others or len(others) < min(self.min_insync_replicas, len(self.replicas)):
            return None
        if not all(self.followers.may_join(replica, self.log_end_offset) for replica in others):
            return None
        return self._propose(others)

    def _propose_expansion(self, candidates: Iterable[int]) -> IsrProposal | None:
        if self.isr.pending is not None:
            return None
        isr, offset = self.isr.committed, max(self.high_watermark, self.epoch_start_offset)
        joining = [
            replica
            for replica in candidates
            if replica not in isr and self.followers.may_join(replica, offset)
        ]
        return self._propose((*isr, *joining)) if joining else None

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        members = tuple(
            IsrMember(
                replica,
                self._brokers.live_epoch(replica)
                if replica == self.broker_id
                else self.followers.broker_epoch(replica),
            )
            for replica in isr
        )
        proposal = IsrProposal(self.leader_epoch, self.partition_epoch, members)
        self.isr.propose(proposal)
        return proposal

    def on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: float) -> Effects:
        """The controller has answered a proposal (rule 5)."""
        if proposal is not self.isr.pending:
            return NO_EFFECTS  # the metadata has brought something newer since
        if answer.error in _NOT_APPLIED:
            self.isr.settle()
            return NO_EFFECTS
        if answer.error in _OUT_OF_DATE:
            return NO_EFFECTS  # it stays pending, and in the maximal ISR, until the metadata comes
        if answer.error is not ErrorCode.NONE:
            return Effects(proposal=proposal, send_later=True)
        if (
            answer.leader_epoch != self.leader_epoch
            or answer.partition_epoch < self.partition_epoch
        ):
            return NO_EFFECTS
        self.partition_epoch = answer.partition_epoch
        self.isr.settle()
        self.isr.commit(answer.isr)
        advanced = self.advance_high_watermark(now_ms)
        return Effects(advanced, self._propose_expansion(self.followers))


def _check_epoch(asked: int, ours: int) -> ErrorCode:
    """Rule 7."""
    if asked < 0 or asked == ours:
        return ErrorCode.NONE
    if asked < ours:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
