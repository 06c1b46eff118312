"""Carries out what partition states decide about their ISRs: proposes, takes answers, and looks
from time to time for followers that have fallen behind.

Rules: `PartitionState` decides; this only sends and calls back. A partition that is led here no
more, or again, ignores answers to what it proposed before.

Called by `replica/manager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from kraftrio.base.clock import Clock
from kraftrio.base.timers import Timer, Timers
from kraftrio.broker.replica.isr import IsrAnswer, IsrProposal
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.partition_state import Effects
from kraftrio.broker.replica.ports import IsrProposer, IsrResult
from kraftrio.kraft_meta.metadata.records import LEADER_RECOVERED
from kraftrio.wire.errors import ErrorCode

_log = logging.getLogger("kraftrio.replicas")

_RETRY_MS = 200  # after an answer that may be better next time


class IsrKeeper:
    """Keeps the ISRs of the partitions that are led here.

    Args:
        led: the partitions to look at for late followers.
        proposals: the way to the controller; without one (a node with no others) ISRs stay.
    """

    def __init__(
        self,
        led: Callable[[], Iterable[Partition]],
        timers: Timers,
        clock: Clock,
        lag_time_max_ms: float,
        proposals: IsrProposer | None = None,
    ) -> None:
        self._led = led
        self._timers = timers
        self._clock = clock
        self._interval_ms = lag_time_max_ms / 2
        self.proposals = proposals
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look for late followers from now on."""
        if self._timer is None:
            self._timer = self._timers.schedule(self._interval_ms, self._look)

    def _look(self) -> None:
        self._timer = self._timers.schedule(self._interval_ms, self._look)
        now_ms = self._clock.monotonic_ms()
        for partition in list(self._led()):
            state = partition.state
            if state.is_sole_replica:
                continue
            advanced = state.advance_high_watermark(now_ms)
            proposal = None if self.proposals is None else state.check_isr(now_ms)
            self.carry_out(partition, Effects(advanced, proposal))

    def resign(self, partition: Partition) -> None:
        """This broker cannot write what it leads: let another one of the ISR lead, if it can be."""
        proposal = None if self.proposals is None else partition.state.propose_resignation()
        if proposal is not None:
            self._propose(partition, proposal)

    def carry_out(self, partition: Partition, effects: Effects) -> None:
        """Do what a state asks for."""
        if effects.proposal is not None:
            if effects.send_later:
                send = partial(self._propose, partition, effects.proposal)
                self._timers.schedule(_RETRY_MS, send)
            else:
                self._propose(partition, effects.proposal)
        if effects.high_watermark_advanced:
            partition.publish_high_watermark()

    def _propose(self, partition: Partition, proposal: IsrProposal) -> None:
        if partition.state.pending_proposal is not proposal or self.proposals is None:
            return
        _log.info(
            "propose isr partition=%s-%d leader_epoch=%d partition_epoch=%d from=%s to=%s",
            *partition.topic_partition, proposal.leader_epoch, proposal.partition_epoch,
            _listed(partition.state.isr), _listed(proposal.broker_ids),
        )  # fmt: skip
        self.proposals.propose(
            partition.topic_partition,
            partition.topic_id,
            proposal.partition_epoch,
            proposal.leader_epoch,
            proposal.isr,
            LEADER_RECOVERED,
            partial(self._on_result, partition, proposal),
        )

    def _on_result(self, partition: Partition, proposal: IsrProposal, result: IsrResult) -> None:
        error = ErrorCode(result.error)
        if error is not ErrorCode.NONE:
            _log.info(
                "isr not taken partition=%s-%d error=%s", *partition.topic_partition, error.name
            )
        answer = IsrAnswer(
            error, result.leader_epoch, result.partition_epoch, tuple(result.isr or ())
        )
        now_ms = self._clock.monotonic_ms()
        partition.tell_followers(0)  # perhaps they are not in the ISR any more
        self.carry_out(partition, partition.state.on_isr_answer(proposal, answer, now_ms))
        partition.check_confirmations()


def _listed(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))
