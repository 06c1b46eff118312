"""One partition replica's role, leader epoch, ISR, followers' progress and high watermark, sans-IO.

The leader's rules
1. The high watermark is the smallest log end offset among the leader, the maximal ISR, and the
   followers that are caught up and may join the ISR. It never goes back within a leadership, and
   stands still while the ISR is smaller than `min.insync.replicas` (KIP-966).  A follower's is its
   leader's, as far as its own log goes; only a follower's log is ever cut, and takes it along.
2. The maximal ISR is the committed one plus whom a proposal in flight would add: were the proposal
   taken without our knowing, everything acknowledged meanwhile would be on the new member, too
   (KIP-497).
3. A follower joins when it has the high watermark and the start of this leader epoch, and the
   broker that fetched is the one registered now (KIP-903). It leaves when it was not caught up for
   `replica.lag.time.max.ms`.
4. A leader that cannot write may propose an ISR without itself: the controller makes one of it the
   leader. Until the metadata says so it leads as before.
5. One proposal at a time. What the controller decided comes by its answer or by the metadata,
   whichever is first; whatever has an older partition epoch is old news.
6. An append with acks=all is refused while the ISR is smaller than `min.insync.replicas`, or than
   all replicas where the topic has fewer.
7. A request that names a leader epoch is served only if it is ours: an older one is fenced
   (FENCED_LEADER_EPOCH), a newer one means that we have not heard of it yet (UNKNOWN_LEADER_EPOCH;
   KIP-320).

A leader knows nothing of its followers until they fetch in its leader epoch, also where it led in
the one before, as far as it knows: the metadata may tell of several changes at once, and followers
may have cut their logs for a leader in between that we never heard of.

Called by `replica/manager`, which owns one `PartitionState` beside each log, calls it without an
await between read and write, and carries out the `Effects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.wire.errors import ErrorCode, KafkaError

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1

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

    NONE: not told yet, or the partition has gone away.
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


class Brokers(Protocol):
    """What the newest metadata says of the other brokers."""

    def live_epoch(self, broker_id: int) -> int:
        """The broker epoch of a broker that is not fenced, else -1."""
        ...

    def may_join_isr(self, broker_id: int) -> bool:
        """Is it registered, not fenced and not shutting down?"""
        ...


class IsrMember(NamedTuple):
    """One broker of a proposed ISR; `broker_epoch` is that of its last fetch, -1: not known."""

    broker_id: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """An ISR for the controller to decide on."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(member.broker_id for member in self.isr)


class IsrAnswer(NamedTuple):
    """What the controller answered; only `error` counts unless that is NONE."""

    error: ErrorCode
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


class Effects(NamedTuple):
    """What the owner is to do after a call."""

    high_watermark_advanced: bool = False
    proposal: IsrProposal | None = None
    send_later: bool = False  # the proposal failed for no fault of its own: after a pause


NO_EFFECTS = Effects()
_ADVANCED = Effects(high_watermark_advanced=True)


class Progress:
    """How far one follower has come, by its fetches."""

    __slots__ = (
        "broker_epoch",
        "fetch_leader_end_offset",
        "fetch_ms",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = float("-inf")
        self.fetch_ms = float("-inf")  # of the last fetch
        self.fetch_leader_end_offset = UNKNOWN_OFFSET  # our log end at the last fetch
        self.broker_epoch: int | None = None

    def on_fetch(self, fetch_offset: int, leader_end_offset: int, now_ms: float) -> None:
        """Note a fetch: it has everything before `fetch_offset`.

        A follower that reads as fast as we write never reaches our end; so it counts as caught up
        at its previous fetch when it has now what we had then.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.fetch_ms)
        self.log_end_offset = fetch_offset
        self.fetch_leader_end_offset = leader_end_offset
        self.fetch_ms = now_ms

    def on_quiet_fetch(self, now_ms: float) -> None:
        """Note fetches, the last one at this time, that found the follower at an end unchanged."""
        self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        self.fetch_ms = max(self.fetch_ms, now_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )


class PartitionState:
    """The replication state of one replica on this broker.

    Args:
        high_watermark: what the log knows (a restart: from its checkpoint).
        brokers: asked only where followers take part.
    """

    __slots__ = (
        "_brokers",
        "_followers",
        "_maximal_isr",
        "_pending",
        "broker_id",
        "epoch_start_offset",
        "high_watermark",
        "is_sole_replica",
        "isr",
        "lag_time_max_ms",
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
        brokers: Brokers,
        *,
        min_insync_replicas: int = 1,
        lag_time_max_ms: float = 30_000,
    ) -> None:
        self.broker_id = broker_id
        self.high_watermark = high_watermark
        self.min_insync_replicas = min_insync_replicas
        self.lag_time_max_ms = lag_time_max_ms
        self._brokers = brokers
        self.role = Role.NONE
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.log_end_offset = UNKNOWN_OFFSET  # the leader's own, kept where there are followers
        self.epoch_start_offset = UNKNOWN_OFFSET
        self._followers: dict[int, Progress] = {}
        self._maximal_isr: frozenset[int] = frozenset()
        self._pending: IsrProposal | None = None
        # The only replica leads: what is appended is committed (the hot path of one node).
        self.is_sole_replica = False

    # -- what the controller decided ------------------------------------------------------------

    def apply(self, partition: PartitionImage, log_end_offset: int, now_ms: float = 0) -> bool:
        """Take over what the controller decided.

        The caller then asks `advance_high_watermark`: a smaller ISR may let it go on.

        Returns:
            True when a leader epoch has begun here: a leader's log notes where it starts, a
            follower has to fetch anew.
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
            self._pending = None  # decided, or out of date
        self.leader_id = partition.leader
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.replicas = partition.replicas
        self.log_end_offset = log_end_offset
        self._move(Role.LEADER if leads else Role.FOLLOWER)
        if not leads:
            self._forget_followers()
            return new_epoch
        self._set_isr(partition.isr)
        known = {} if new_epoch else self._followers
        self._followers = {
            replica: known.get(replica) or Progress()
            for replica in partition.replicas
            if replica != self.broker_id
        }
        if new_epoch:
            self.epoch_start_offset = log_end_offset
            for replica, progress in self._followers.items():
                if replica in partition.isr:
                    progress.last_caught_up_ms = now_ms  # it has time to fetch
        return new_epoch

    def resign(self) -> None:
        """The replica goes away: serve nobody any more."""
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
        self._followers = {}
        self.isr = ()
        self._maximal_isr = frozenset()
        self._pending = None
        self.epoch_start_offset = UNKNOWN_OFFSET

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        if self._pending is None:
            self._maximal_isr = frozenset(isr)
        else:
            self._maximal_isr = frozenset(isr).union(self._pending.broker_ids)

    # -- checks ---------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < min(self.min_insync_replicas, len(self.replicas))

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self._maximal_isr

    @property
    def pending_proposal(self) -> IsrProposal | None:
        return self._pending

    @property
    def offset_is_behind_epoch(self) -> bool:
        """Is the high watermark not yet where this leadership began?  A consumer that was told a
        later one by the leader before would see it go back.
        """
        return self.high_watermark < self.epoch_start_offset

    def progress(self, replica_id: int) -> Progress | None:
        """How far a follower is, as its leader knows."""
        return self._followers.get(replica_id)

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """May a request that names this leader epoch (-1: none) be served here?"""
        if self.role is not Role.LEADER:
            if self.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self._check_epoch(current_leader_epoch)

    def check_readable(self, current_leader_epoch: int) -> ErrorCode:
        """May a consumer that names this leader epoch (-1: none) read here, leader or not?"""
        if self.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return self._check_epoch(current_leader_epoch)

    def _check_epoch(self, leader_epoch: int) -> ErrorCode:
        if leader_epoch < 0 or leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_followed(self, leader_epoch: int | None) -> ErrorCode:
        """May what was fetched in this leader epoch (None: whichever) be written here?"""
        if self.role is not Role.FOLLOWER:
            if self.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self._check_epoch(-1 if leader_epoch is None else leader_epoch)

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
        if len(self._maximal_isr) < min(self.min_insync_replicas, len(self.replicas)):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> ErrorCode:
        """May this broker fetch as a follower?  The leader epoch is checked before."""
        if replica_id in self._followers:
            return ErrorCode.NONE
        if current_leader_epoch == self.leader_epoch:
            # A reassignment raises no leader epoch, so the follower may know of it before we do.
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # -- progress -------------------------------------------------------------------------------

    def on_sole_append(self, log_end_offset: int) -> None:
        """The only replica's log grew, and all of it is committed."""
        self.high_watermark = log_end_offset

    def on_append(self, log_end_offset: int, now_ms: float = 0) -> bool:
        """The leader's log grew; True when the high watermark advanced."""
        self.log_end_offset = log_end_offset
        if len(self._maximal_isr) > 1:
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
            broker_epoch: the follower's own, -1 if it told none.
            log_end_offset: ours.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER from a broker that has restarted since.
        """
        assert self.role is Role.LEADER
        progress = self._followers[replica_id]
        if UNKNOWN_BROKER_EPOCH < broker_epoch < self._brokers.live_epoch(replica_id):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} fetches with its former epoch {broker_epoch}",
            )
        grew = fetch_offset != progress.log_end_offset
        self.log_end_offset = log_end_offset
        progress.broker_epoch = broker_epoch
        progress.log_start_offset = log_start_offset
        progress.on_fetch(fetch_offset, log_end_offset, now_ms)
        proposal = None
        if replica_id not in self._maximal_isr:
            proposal = self._propose_expansion((replica_id,))
        if grew and self.advance_high_watermark(now_ms):
            return _ADVANCED if proposal is None else Effects(True, proposal)
        return NO_EFFECTS if proposal is None else Effects(False, proposal)

    def advance_high_watermark(self, now_ms: float = 0) -> bool:
        """Apply rule 1; True when the high watermark advanced."""
        if self.role is not Role.LEADER or self.is_under_min_isr:
            return False
        offset = end_offset = self.log_end_offset
        for replica, progress in self._followers.items():
            if progress.log_end_offset < offset and (
                replica in self._maximal_isr
                or (
                    progress.is_caught_up(end_offset, now_ms, self.lag_time_max_ms)
                    and self._is_eligible(replica, progress)
                )
            ):
                offset = progress.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def on_leader_answer(
        self, leader_high_watermark: int, log_start_offset: int, log_end_offset: int
    ) -> bool:
        """A follower has taken what its leader answered; True when the high watermark advanced.

        Args:
            log_start_offset: of our own log, as it is now.
            log_end_offset: likewise.
        """
        before = self.high_watermark
        self.on_truncation(log_start_offset, log_end_offset)
        offset = min(leader_high_watermark, log_end_offset)
        self.high_watermark = max(self.high_watermark, offset)
        return self.high_watermark > before

    def on_truncation(self, log_start_offset: int, log_end_offset: int) -> None:
        """A follower's log was cut, or began again elsewhere: nothing beyond it is known."""
        self.high_watermark = max(min(self.high_watermark, log_end_offset), log_start_offset)

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start offset among us and the live followers."""
        for replica, progress in self._followers.items():
            if (
                progress.log_start_offset < log_start_offset
                and self._brokers.live_epoch(replica) >= 0
            ):
                log_start_offset = progress.log_start_offset
        return log_start_offset

    # -- the ISR --------------------------------------------------------------------------------

    def check_isr(self, now_ms: float) -> IsrProposal | None:
        """Propose an ISR without the followers that are not caught up any more (rule 3)."""
        if self.role is not Role.LEADER or self._pending is not None or len(self.isr) < 2:
            return None
        kept = tuple(replica for replica in self.isr if not self._is_late(replica, now_ms))
        return None if len(kept) == len(self.isr) else self._propose(kept)

    def propose_resignation(self) -> IsrProposal | None:
        """Propose the ISR without this leader, whose disk takes no more, so that another one leads.

        Only if all the others have what it has, lest what was acknowledged with acks=1 is cut, and
        are enough for acks=all: else the partition would be no better off.
        """
        if self.role is not Role.LEADER or self._pending is not None:
            return None
        others = tuple(replica for replica in self.isr if replica != self.broker_id)
        if not others or len(others) < min(self.min_insync_replicas, len(self.replicas)):
            return None
        for replica in others:
            progress = self._followers.get(replica)
            if (
                progress is None
                or progress.log_end_offset != self.log_end_offset
                or not self._is_eligible(replica, progress)
            ):
                return None
        return self._propose(others)

    def _is_late(self, replica: int, now_ms: float) -> bool:
        if replica == self.broker_id:
            return False
        progress = self._followers.get(replica)
        return progress is None or not progress.is_caught_up(
            self.log_end_offset, now_ms, self.lag_time_max_ms
        )

    def _propose_expansion(self, candidates: Iterable[int]) -> IsrProposal | None:
        if self._pending is not None:
            return None
        joining = [replica for replica in candidates if self._may_join(replica)]
        return self._propose((*self.isr, *joining)) if joining else None

    def _may_join(self, replica: int) -> bool:
        progress = self._followers[replica]
        return (
            replica not in self.isr
            and progress.log_end_offset >= self.high_watermark
            and progress.log_end_offset >= self.epoch_start_offset
            and self._is_eligible(replica, progress)
        )

    def _is_eligible(self, replica: int, progress: Progress) -> bool:
        epoch = progress.broker_epoch
        return (
            epoch is not None
            and self._brokers.may_join_isr(replica)
            and epoch in (UNKNOWN_BROKER_EPOCH, self._brokers.live_epoch(replica))
        )

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        members = tuple(IsrMember(replica, self._broker_epoch(replica)) for replica in isr)
        self._pending = IsrProposal(self.leader_epoch, self.partition_epoch, members)
        self._set_isr(self.isr)
        return self._pending

    def _broker_epoch(self, replica: int) -> int:
        if replica == self.broker_id:
            return self._brokers.live_epoch(replica)
        progress = self._followers.get(replica)
        if progress is None or progress.broker_epoch is None:
            return UNKNOWN_BROKER_EPOCH
        return progress.broker_epoch

    def on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: float) -> Effects:
        """The controller has answered a proposal (rule 5)."""
        if proposal is not self._pending:
            return NO_EFFECTS  # the metadata told us more since
        if answer.error is not ErrorCode.NONE:
            return self._on_isr_refusal(proposal, answer.error)
        if (
            answer.leader_epoch != self.leader_epoch
            or answer.partition_epoch < self.partition_epoch
        ):
            return NO_EFFECTS
        self._pending = None
        self.partition_epoch = answer.partition_epoch
        self._set_isr(answer.isr)
        advanced = self.advance_high_watermark(now_ms)
        return Effects(advanced, self._propose_expansion(self._followers))

    def _on_isr_refusal(self, proposal: IsrProposal, error: ErrorCode) -> Effects:
        if error in _NOT_APPLIED:
            self._pending = None
            self._set_isr(self.isr)
            return NO_EFFECTS
        if error in _OUT_OF_DATE:
            return NO_EFFECTS  # it stays pending, and in the maximal ISR, until the metadata comes
        return Effects(proposal=proposal, send_later=True)
