"""Sends the leaders' ISR proposals to the controller: `IsrProposals`.

Owns: the proposals that wait, and the one AlterPartition request that is under way. Rules:
1. Everything proposed in one turn of the event loop, and all that came while a request was under
   way, goes in one request (`gathered_requests`).
2. Of one partition one proposal at a time is under way. A newer one waits until the former is
   answered; of those that wait the newest counts, the others get OPERATION_NOT_ATTEMPTED.
3. A request that failed as a whole (no controller in time, a broker epoch that is not known yet) is
   sent again after a pause, with the broker epoch of that time, until it is answered.
4. Every proposal is answered once, by its callback; callbacks may propose.

Called by `isr_keeper`. AlterPartition version 3 (KIP-497, KIP-903); Kafka's
counterpart: AlterPartitionManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kraftrio.broker.ports import ControllerPort, SchedulerPort
from kraftrio.broker.replica.isr.gathered_requests import GatheredRequests, PartitionKey
from kraftrio.broker.replica.state.isr import IsrAnswer, IsrProposal
from kraftrio.kraft_meta.metadata.records import LEADER_RECOVERED
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


@dataclass(frozen=True, slots=True)
class _WaitingProposal:
    data: AlterPartitionRequestPartitionData
    callback: Callable[[IsrAnswer], None]


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
        self._requests: GatheredRequests[_WaitingProposal] = GatheredRequests(scheduler, self._send)

    def propose(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        proposal: IsrProposal,
        callback: Callable[[IsrAnswer], None],
    ) -> None:
        """Ask the controller for another ISR of a partition that this broker leads.

        Args:
            callback: gets the controller's answer, never within this call.
        """
        data = AlterPartitionRequestPartitionData(
            partition_index=topic_partition.partition,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                for member in proposal.isr
            ],
            leader_recovery_state=LEADER_RECOVERED,
            partition_epoch=proposal.partition_epoch,
        )
        key = (topic_id, topic_partition.partition)
        waiting = self._requests.waiting
        self._withdraw(waiting.pop(key, None))
        waiting[key] = _WaitingProposal(data, callback)
        self._requests.send_after(0)

    def _withdraw(self, proposal: _WaitingProposal | None) -> None:
        """Drop a proposal for a newer one; its answer comes later, not within `propose`."""
        if proposal is None:
            return
        answer = IsrAnswer(ErrorCode.OPERATION_NOT_ATTEMPTED)
        self._scheduler.schedule(0, partial(proposal.callback, answer))

    # -- sending --------------------------------------------------------------------------------

    def _send(self) -> None:
        requests = self._requests
        requests.under_way, requests.waiting = requests.waiting, {}
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for (topic_id, _), proposal in requests.under_way.items():
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
        proposals = self._requests.take_answered()
        code = response.error_code
        if code is not ErrorCode.NONE:
            _log.warning(
                "isr proposals failed, retrying count=%d reason=%s",
                len(proposals),
                code.name,
            )
            self._keep(proposals)
            self._requests.send_after(_RETRY_MS)
            return
        answered: list[tuple[_WaitingProposal, IsrAnswer]] = []
        for topic in response.topics:
            for partition in topic.partitions:
                proposal = proposals.pop((topic.topic_id, partition.partition_index), None)
                if proposal is None:
                    _log.warning(
                        "unexpected answer to isr proposals topic_id=%s partition=%d",
                        uuid_to_text(topic.topic_id),
                        partition.partition_index,
                    )
                    continue
                answer = IsrAnswer(
                    partition.error_code,
                    partition.leader_epoch,
                    partition.partition_epoch,
                    tuple(partition.isr),
                )
                answered.append((proposal, answer))
        self._keep(proposals)  # what the answer leaves out is asked again
        self._requests.send_after(_RETRY_MS if proposals else 0)
        for proposal, answer in answered:
            proposal.callback(answer)

    def _keep(self, proposals: dict[PartitionKey, _WaitingProposal]) -> None:
        """Put proposals back, before those that came since; a newer one of a partition counts."""
        newer = self._requests.waiting
        self._requests.waiting = waiting = {}
        for key, proposal in proposals.items():
            if key in newer:
                self._withdraw(proposal)
            else:
                waiting[key] = proposal
        waiting.update(newer)
