"""Keeps the ISRs of the partitions led here up to date.

Takes followers' fetches, sends proposals, takes the answers, and checks periodically for followers
that have fallen behind. `PartitionState` decides; this carries out. A partition that is not led
here any more, or is led in a new leader epoch, ignores answers to earlier proposals.

Called by the Fetch handler, `replica_roles`, and `full_directories` (`resign`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial

from kraftrio.base.clock import Clock
from kraftrio.base.timers import Timer, Timers
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.ports import IsrProposer
from kraftrio.broker.replica.state.isr import IsrAnswer, IsrProposal
from kraftrio.broker.replica.state.partition_state import NO_EFFECTS, Effects
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

_log = logging.getLogger("kraftrio.replicas")

_RETRY_MS = 200  # after an answer that may be better next time


class IsrKeeper:
    """See the module; one per broker.

    Args:
        partitions: the replicas on this broker.
        lag_time_max_ms: replica.lag.time.max.ms; half of it passes between two checks.
        proposals: the way to the controller.

    Attributes:
        expand_count: how many ISRs have grown since the start.
        shrink_count: how many have lost members.
    """

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        timers: Timers,
        clock: Clock,
        lag_time_max_ms: float,
        proposals: IsrProposer,
    ) -> None:
        self._partitions = partitions
        self._timers = timers
        self._clock = clock
        self._interval_ms = lag_time_max_ms / 2
        self._proposals = proposals
        self._timer: Timer | None = None
        self.expand_count = 0
        self.shrink_count = 0

    def start(self) -> None:
        """Check for late followers from now on."""
        if self._timer is None:
            self._timer = self._timers.schedule(self._interval_ms, self._check_all)

    def _check_all(self) -> None:
        self._timer = self._timers.schedule(self._interval_ms, self._check_all)
        now_ms = self._clock.monotonic_ms()
        for partition in list(self._partitions.values()):
            state = partition.state
            if state.is_sole_replica:
                continue
            advanced = state.advance_high_watermark(now_ms)
            self._carry_out(partition, Effects(advanced, state.check_isr(now_ms)))

    def resign(self, partition: Partition) -> None:
        """This broker cannot write to a partition that it leads: let another replica lead."""
        proposal = partition.state.propose_resignation()
        if proposal is not None:
            self._propose(partition, proposal)

    def on_follower_fetch(
        self,
        partition: Partition,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: float,
    ) -> None:
        """A follower has everything before `fetch_offset`, which lies within our log.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: that broker has restarted since.
        """
        effects = partition.state.on_follower_fetch(
            replica_id,
            broker_epoch,
            fetch_offset,
            log_start_offset,
            partition.log.log_end_offset,
            now_ms,
        )
        if effects is not NO_EFFECTS:
            self._carry_out(partition, effects)
        if partition.low_watermark_waiters.waiting:
            partition.check_low_watermark()
        if partition.confirmations:
            partition.on_follower_fetch(replica_id)

    def _carry_out(self, partition: Partition, effects: Effects) -> None:
        """Carry out what a state decided."""
        if effects.proposal is not None:
            if effects.send_later:
                send = partial(self._propose, partition, effects.proposal)
                self._timers.schedule(_RETRY_MS, send)
            else:
                self._propose(partition, effects.proposal)
        if effects.high_watermark_advanced:
            partition.publish_high_watermark()

    def _propose(self, partition: Partition, proposal: IsrProposal) -> None:
        if partition.state.isr.pending is not proposal:
            return
        _log.info(
            "propose isr partition=%s-%d leader_epoch=%d partition_epoch=%d from=%s to=%s",
            *partition.topic_partition, proposal.leader_epoch, proposal.partition_epoch,
            _listed(partition.state.isr.committed), _listed(proposal.broker_ids),
        )  # fmt: skip
        self._proposals.propose(
            partition.topic_partition,
            partition.topic_id,
            proposal,
            partial(self._on_answer, partition, proposal),
        )

    def _on_answer(self, partition: Partition, proposal: IsrProposal, answer: IsrAnswer) -> None:
        before = len(partition.state.isr.committed)
        if answer.error is not ErrorCode.NONE:
            _log.info(
                "isr proposal refused partition=%s-%d error=%s",
                *partition.topic_partition, answer.error.name,
            )  # fmt: skip
        now_ms = self._clock.monotonic_ms()
        partition.notify_followers(0)  # they may have left the ISR
        effects = partition.state.on_isr_answer(proposal, answer, now_ms)
        self.expand_count += len(partition.state.isr.committed) > before
        self.shrink_count += len(partition.state.isr.committed) < before
        self._carry_out(partition, effects)
        partition.check_confirmations()


def _listed(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))
