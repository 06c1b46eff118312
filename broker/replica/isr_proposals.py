"""Sends the leaders' ISR proposals to the controller: `IsrProposals`.

Owns: the proposals that wait, and the one AlterPartition request that is under way. Rules:
1. Everything proposed in one turn of the event loop, and all that came while a request was under
   way, goes in one request: a broker that dies shrinks thousands of ISRs at once.
2. Of one partition one proposal at a time is under way. A newer one waits until the former is
   answered; of those that wait the newest counts, the others get OPERATION_NOT_ATTEMPTED.
3. A request that failed as a whole (no controller in time, a broker epoch that is not known yet) is
   sent again after a pause, with the broker epoch of then, until it is answered.
4. Every proposal is answered once, by its callback; callbacks may propose.

Called by: replica/manager.py (`propose`). AlterPartition version 3 (KIP-497, KIP-903); Kafka's
counterpart: AlterPartitionManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraftrio.broker.ports import ControllerPort, SchedulerPort
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)
from kraftrio.wire.primitives import TopicPartition, uuid_to_text

_log = logging.getLogger("kraftrio.isr")

_ALTER_PARTITION_VERSION = 3
_RETRY_MS = 50


class IsrProposalResult(NamedTuple):
    """What the controller decided; only `error` counts unless that is NONE."""

    error: ErrorCode
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    recovery_state: int = 0
    partition_epoch: int = -1


_Key = tuple[bytes, int]  # topic id, partition
IsrCallback = Callable[[IsrProposalResult], object]


@dataclass(frozen=True, slots=True)
class _Proposal:
    topic_partition: TopicPartition
    data: AlterPartitionRequestPartitionData
    callback: IsrCallback


class IsrProposals:
    """See the module; one per broker.

    Args:
        controller: the way to the active controller.
        broker_epoch: the epoch of this broker's registration, as it is now.
        scheduler: for the pauses, and to gather what is proposed in one turn of the loop.
    """

    def __init__(
        self,
        controller: ControllerPort,
        broker_id: int,
        broker_epoch: Callable[[], int],
        scheduler: SchedulerPort,
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._scheduler = scheduler
        self._waiting: dict[_Key, _Proposal] = {}
        self._under_way: dict[_Key, _Proposal] = {}
        self._is_scheduled = False

    def propose(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        partition_epoch: int,
        leader_epoch: int,
        isr: Sequence[tuple[int, int]],
        recovery_state: int,
        callback: IsrCallback,
    ) -> None:
        """Ask the controller for another ISR of a partition that this broker leads.

        Args:
            isr: (broker_id, broker_epoch) of each member; -1 for an epoch that is not known.
            callback: gets the `IsrProposalResult`, never within this call.
        """
        data = AlterPartitionRequestPartitionData(
            partition_index=topic_partition.partition,
            leader_epoch=leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=broker_id, broker_epoch=broker_epoch)
                for broker_id, broker_epoch in isr
            ],
            leader_recovery_state=recovery_state,
            partition_epoch=partition_epoch,
        )
        key = (topic_id, topic_partition.partition)
        self._withdraw(self._waiting.pop(key, None))
        self._waiting[key] = _Proposal(topic_partition, data, callback)
        self._send_after(0)

    def _withdraw(self, proposal: _Proposal | None) -> None:
        """Give up a proposal for a newer one; told later, as its maker is just proposing."""
        if proposal is None:
            return
        callback = proposal.callback

        def tell() -> None:
            callback(IsrProposalResult(ErrorCode.OPERATION_NOT_ATTEMPTED))

        self._scheduler.schedule(0, tell)

    # -- sending --------------------------------------------------------------------------------

    def _send_after(self, delay_ms: float) -> None:
        if self._waiting and not self._under_way and not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.schedule(delay_ms, self._send)

    def _send(self) -> None:
        self._is_scheduled = False
        assert not self._under_way, "one request at a time"
        self._under_way, self._waiting = self._waiting, {}
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for (topic_id, _), proposal in self._under_way.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = AlterPartitionRequestTopicData(topic_id=topic_id)
                topics[topic_id] = topic
            topic.partitions.append(proposal.data)
        request = AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=list(topics.values()),
        )
        self._controller.submit(request, api_version=_ALTER_PARTITION_VERSION).then(self._on_answer)

    def _on_answer(self, response: AlterPartitionResponse) -> None:
        proposals, self._under_way = self._under_way, {}
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            _log.warning(
                "isr proposals not decided, trying again count=%d reason=%s",
                len(proposals),
                code.name,
            )
            self._keep(proposals)
            self._send_after(_RETRY_MS)
            return
        answered: list[tuple[_Proposal, IsrProposalResult]] = []
        for topic in response.topics:
            for partition in topic.partitions:
                proposal = proposals.pop((topic.topic_id, partition.partition_index), None)
                if proposal is None:
                    _log.warning(
                        "answer to no isr proposal topic_id=%s partition=%d",
                        uuid_to_text(topic.topic_id),
                        partition.partition_index,
                    )
                    continue
                result = IsrProposalResult(
                    ErrorCode(partition.error_code),
                    partition.leader_id,
                    partition.leader_epoch,
                    tuple(partition.isr),
                    partition.leader_recovery_state,
                    partition.partition_epoch,
                )
                answered.append((proposal, result))
        self._keep(proposals)  # what the controller did not speak of is asked again
        self._send_after(_RETRY_MS if proposals else 0)
        for proposal, result in answered:
            proposal.callback(result)

    def _keep(self, proposals: dict[_Key, _Proposal]) -> None:
        """Put proposals back, before those that came since; a newer one of a partition counts."""
        newer, self._waiting = self._waiting, {}
        for key, proposal in proposals.items():
            if key in newer:
                self._withdraw(proposal)
            else:
                self._waiting[key] = proposal
        self._waiting.update(newer)
