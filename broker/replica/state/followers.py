"""The progress of a leader's followers, as their fetches show it; sans-IO.

Owns: `Followers`, a `FollowerProgress` for each other replica of a partition that is led here.
Nothing is known of a follower until it fetches in this leadership: what it had in an earlier one
may have been truncated since.

Called by `partition_state`; `waiters` notes the fetches of quiet followers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from kraftrio.wire.errors import ErrorCode, KafkaError

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1


class KnownBrokers(Protocol):
    """What the newest metadata says of the other brokers."""

    def live_epoch(self, broker_id: int) -> int:
        """The broker epoch of a broker that is not fenced, else -1."""
        ...

    def may_join_isr(self, broker_id: int) -> bool:
        """Is it registered, not fenced and not shutting down?"""
        ...


class FollowerProgress:
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
        """Note a fetch: the follower has everything before `fetch_offset`.

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
        """Note that fetches up to this time were sent from the same, unchanged log end offset."""
        self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        self.fetch_ms = max(self.fetch_ms, now_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )


class Followers:
    """See the module.

    Args:
        brokers: which brokers are alive.
        lag_time_max_ms: replica.lag.time.max.ms.
    """

    __slots__ = ("_brokers", "_lag_time_max_ms", "_progress")

    def __init__(self, brokers: KnownBrokers, lag_time_max_ms: float) -> None:
        self._brokers = brokers
        self._lag_time_max_ms = lag_time_max_ms
        self._progress: dict[int, FollowerProgress] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._progress)

    def __contains__(self, replica_id: int) -> bool:
        return replica_id in self._progress

    def get(self, replica_id: int) -> FollowerProgress | None:
        """What is known of a follower; None: it is not a replica."""
        return self._progress.get(replica_id)

    # -- who they are ---------------------------------------------------------------------------

    def begin(self, replica_ids: Iterable[int], isr: Collection[int], now_ms: float) -> None:
        """A leadership begins; the members of the ISR are given time to fetch."""
        self._progress = {replica_id: FollowerProgress() for replica_id in replica_ids}
        for replica_id, progress in self._progress.items():
            if replica_id in isr:
                progress.last_caught_up_ms = now_ms

    def change(self, replica_ids: Iterable[int]) -> None:
        """Replicas were added or removed; the leadership goes on."""
        known = self._progress
        self._progress = {
            replica_id: known.get(replica_id) or FollowerProgress() for replica_id in replica_ids
        }

    def clear(self) -> None:
        """This replica does not lead any more."""
        self._progress = {}

    # -- progress ------------------------------------------------------------------------------

    def on_fetch(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: float,
    ) -> bool:
        """Note a fetch; True when the follower's log end offset has changed.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER from a broker that has restarted since.
        """
        if UNKNOWN_BROKER_EPOCH < broker_epoch < self._brokers.live_epoch(replica_id):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} fetches with its former epoch {broker_epoch}",
            )
        progress = self._progress[replica_id]
        has_moved = fetch_offset != progress.log_end_offset
        progress.broker_epoch = broker_epoch
        progress.log_start_offset = log_start_offset
        progress.on_fetch(fetch_offset, leader_end_offset, now_ms)
        return has_moved

    def shared_end_offset(
        self, maximal_isr: Collection[int], leader_end_offset: int, now_ms: float
    ) -> int:
        """The smallest log end offset of the leader, the maximal ISR, and those about to join."""
        offset = leader_end_offset
        for replica_id, progress in self._progress.items():
            if progress.log_end_offset < offset and (
                replica_id in maximal_isr
                or (
                    progress.is_caught_up(leader_end_offset, now_ms, self._lag_time_max_ms)
                    and self.is_eligible(replica_id)
                )
            ):
                offset = progress.log_end_offset
        return offset

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start offset of the leader (as given) and the live followers."""
        for replica_id, progress in self._progress.items():
            if (
                progress.log_start_offset < log_start_offset
                and self._brokers.live_epoch(replica_id) >= 0
            ):
                log_start_offset = progress.log_start_offset
        return log_start_offset

    # -- may they be in the ISR? ----------------------------------------------------------------

    def is_late(self, replica_id: int, leader_end_offset: int, now_ms: float) -> bool:
        """Was it not caught up for replica.lag.time.max.ms?"""
        progress = self._progress.get(replica_id)
        return progress is None or not progress.is_caught_up(
            leader_end_offset, now_ms, self._lag_time_max_ms
        )

    def may_join(self, replica_id: int, offset: int) -> bool:
        """Does it have everything before `offset`, and is it eligible?"""
        progress = self._progress.get(replica_id)
        return (
            progress is not None
            and progress.log_end_offset >= offset
            and self.is_eligible(replica_id)
        )

    def is_eligible(self, replica_id: int) -> bool:
        """Was its last fetch sent by the broker that is registered now, and not shutting down?

        See KIP-903.
        """
        progress = self._progress.get(replica_id)
        epoch = None if progress is None else progress.broker_epoch
        return (
            epoch is not None
            and self._brokers.may_join_isr(replica_id)
            and epoch in (UNKNOWN_BROKER_EPOCH, self._brokers.live_epoch(replica_id))
        )

    def broker_epoch(self, replica_id: int) -> int:
        """The broker epoch in its last fetch, -1 if there was none."""
        progress = self._progress.get(replica_id)
        if progress is None or progress.broker_epoch is None:
            return UNKNOWN_BROKER_EPOCH
        return progress.broker_epoch
