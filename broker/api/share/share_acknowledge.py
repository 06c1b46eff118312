"""ShareAcknowledge: what a member says of the records that it has acquired.

Behaviour (Apache Kafka's)
- It goes on with the member's share session, which a ShareFetch has opened; epoch -1 ends that, and
  what the member has of its partitions is taken back once the acknowledgements are kept.
- Each partition is answered by itself (`acknowledgements`); where this broker does not lead it any
  more, with the present leader.

Version notes: 2 has renewed locks (KIP-1222), and says how long a lock lasts.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftrio.broker.api.share.acknowledgements import Acknowledgements
from kraftrio.broker.api.share.share_requests import (
    AnswersByTopic,
    LeadersToName,
    check_member,
)
from kraftrio.broker.coordinator.groups.properties import GroupSettingsPort
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionPartition
from kraftrio.broker.share.share_partitions import SharePartitions
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_fetch import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kraftrio.wire.protocol.api import ApiKey


class ShareAcknowledgeHandler:
    """The handler of ShareAcknowledge.

    Args:
        is_enabled: are there share groups (share.version)?
    """

    def __init__(
        self,
        share_partitions: SharePartitions,
        metadata: MetadataCache,
        settings: GroupSettingsPort,
        is_enabled: Callable[[], bool],
    ) -> None:
        self._share_partitions = share_partitions
        self._metadata = metadata
        self._settings = settings
        self._is_enabled = is_enabled

    def table(self) -> HandlerTable:
        return {ApiKey.SHARE_ACKNOWLEDGE: self.acknowledge}

    def acknowledge(
        self, request: ShareAcknowledgeRequest, context: RequestContext
    ) -> Work[ShareAcknowledgeResponse]:
        """Take acknowledgements, and answer when they are kept."""
        sessions = self._share_partitions.sessions
        epoch = request.share_session_epoch
        try:
            member = check_member(request, context, is_enabled=self._is_enabled())
            if epoch == INITIAL_EPOCH:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session = sessions.use(member, epoch)
        except KafkaError as error:
            return ShareAcknowledgeResponse(error_code=error.code)
        acknowledgements = Acknowledgements(
            self._share_partitions,
            self._metadata,
            context,
            *member,
            has_renewals=request.is_renew_ack,
        )
        yield from acknowledgements.begin(request.topics)
        yield from acknowledgements.wait()
        if epoch == FINAL_EPOCH:
            self._share_partitions.end_session(session)
        answers = AnswersByTopic(
            lambda topic_id: ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
        )
        leaders = LeadersToName(self._metadata, context)
        for named, refusal in acknowledgements.errors.items():
            answers.add(named.topic_id, _answer(named, refusal, leaders))
            yield None
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._settings.number(
                member.group_id, "share.record.lock.duration.ms"
            ),
            responses=answers.topics(),
            node_endpoints=leaders.node_endpoints(),
        )


def _answer(
    named: SessionPartition, refusal: KafkaError | None, leaders: LeadersToName
) -> ShareAcknowledgePartitionData:
    answer = ShareAcknowledgePartitionData(partition_index=named.partition)
    if refusal is not None:
        answer.error_code = refusal.code
        answer.error_message = refusal.message
        answer.current_leader = leaders.of(named, refusal.code)
    return answer
