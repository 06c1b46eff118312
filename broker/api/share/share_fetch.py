"""ShareFetch: records for a member of a share group, and acknowledgements of earlier ones.

Behaviour (Apache Kafka's)
- Epoch 0 opens a share session, -1 ends it; between, each request has the next one and names what
  changes (`broker/share/sessions`). The first request has no acknowledgements, the last no records.
- Acknowledgements are taken first; the answer comes when they are kept, and there are records, or
  the time is up.
- Each partition gets an equal share of `max_bytes`, but that the first one with records gives a
  whole batch, whatever its size; another partition is the first each time. `max_records` is for all
  partitions together.
- The records are those of the batches that have the acquired ones; a client skips the others.
- A request that renews locks asks for no records.
- A partition is answered if it has records, an error, or has just been added to the session.
- When there are too many sessions the refusal waits as long as a fetch would.


Version notes: 2 has the acquire mode (KIP-1206), and renewed locks (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraftrio.broker.api.share.acknowledgements import RENEW_VERSION, Acknowledgements
from kraftrio.broker.api.share.ongoing_share_fetch import (
    OngoingShareFetch,
    ShareFetchAnswers,
    ShareFetchServices,
)
from kraftrio.broker.api.share.share_requests import (
    AnswersByTopic,
    LeadersToName,
    check_member,
)
from kraftrio.broker.coordinator.groups.properties import GroupSettingsPort
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionPartition,
    ShareSession,
    ShareSessionKey,
)
from kraftrio.broker.share.share_partitions import SharePartitions
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_fetch import (
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)
from kraftrio.wire.protocol.api import ApiKey


class ShareFetchHandler:
    """The handler of ShareFetch.

    Args:
        is_enabled: are there share groups (share.version)?
    """

    def __init__(
        self,
        share_partitions: SharePartitions,
        metadata: MetadataCache,
        settings: GroupSettingsPort,
        services: ShareFetchServices,
        is_enabled: Callable[[], bool],
    ) -> None:
        self._share_partitions = share_partitions
        self._metadata = metadata
        self._settings = settings
        self._services = services
        self._is_enabled = is_enabled

    def table(self) -> HandlerTable:
        return {ApiKey.SHARE_FETCH: self.fetch}

    def fetch(
        self, request: ShareFetchRequest, context: RequestContext
    ) -> Work[ShareFetchResponse]:
        """Take acknowledgements, and answer with records when there are some."""
        try:
            member = check_member(request, context, is_enabled=self._is_enabled())
            renews = request.is_renew_ack and context.api_version >= RENEW_VERSION
            if renews:
                _check_renewal(request)
            session = yield from self._session(request, member, context)
        except KafkaError as error:
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                yield self._services.pause(request.max_wait_ms)
            return ShareFetchResponse(error_code=error.code)
        epoch = request.share_session_epoch
        acknowledgements = Acknowledgements(
            self._share_partitions, self._metadata, context, *member, has_renewals=renews
        )
        if epoch != INITIAL_EPOCH and (yield from _has_acknowledgements(request)):
            yield from acknowledgements.begin(request.topics)
        answers = ShareFetchAnswers(None if epoch == INITIAL_EPOCH else session)
        if epoch != FINAL_EPOCH and not renews:
            fetch = OngoingShareFetch(
                self._share_partitions, self._services, request, context, session, answers
            )
            yield from fetch.run()
        yield from acknowledgements.wait()
        reported = yield from answers.to_report()
        if epoch == FINAL_EPOCH:
            self._share_partitions.end_session(session)
        response = yield from self._response(reported, acknowledgements, member, context)
        response.throttle_time_ms = self._services.wait_ms(answers.record_bytes, context)
        return response

    def _session(
        self, request: ShareFetchRequest, member: ShareSessionKey, context: RequestContext
    ) -> Work[ShareSession]:
        """The session of a request, with what it changes of it (raises KafkaError)."""
        epoch, sessions = request.share_session_epoch, self._share_partitions.sessions
        if epoch == FINAL_EPOCH:
            return sessions.use(member, epoch)
        if epoch == INITIAL_EPOCH and (yield from _has_acknowledgements(request)):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        named = []
        for topic in request.topics:
            for partition in topic.partitions:
                named.append(SessionPartition(topic.topic_id, partition.partition_index))
                if not len(named) % 100:
                    yield None
        if epoch == INITIAL_EPOCH:
            return self._share_partitions.open_session(member, named, context.client)
        forgotten = [
            SessionPartition(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        session = sessions.use(member, epoch)
        sessions.change(session, named, forgotten)
        return session

    def _response(
        self,
        reported: Iterable[tuple[SessionPartition, SharePartitionData]],
        acknowledgements: Acknowledgements,
        member: ShareSessionKey,
        context: RequestContext,
    ) -> Work[ShareFetchResponse]:
        answers = AnswersByTopic(
            lambda topic_id: ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
        )
        leaders = LeadersToName(self._metadata, context)
        errors = acknowledgements.errors

        def add(named: SessionPartition, answer: SharePartitionData) -> None:
            answers.add(named.topic_id, answer)
            code = answer.error_code or answer.acknowledge_error_code
            if code:
                answer.current_leader = leaders.of(named, code)

        for named, answer in reported:
            if named in errors:
                _set_acknowledge_error(answer, errors.pop(named))
            add(named, answer)
            yield None
        for named, error in errors.items():
            answer = SharePartitionData(
                partition_index=named.partition, records=b"", acquired_records=[]
            )
            _set_acknowledge_error(answer, error)
            add(named, answer)
            yield None
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._settings.number(
                member.group_id, "share.record.lock.duration.ms"
            ),
            responses=answers.topics(),
            node_endpoints=leaders.node_endpoints(),
        )


def _check_renewal(request: ShareFetchRequest) -> None:
    """A request that renews locks asks for no records.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _has_acknowledgements(request: ShareFetchRequest) -> Work[bool]:
    count = 0
    for topic in request.topics:
        for partition in topic.partitions:
            if len(partition.acknowledgement_batches):
                return True
            count += 1
            if not count % 100:
                yield None
    return False


def _set_acknowledge_error(answer: SharePartitionData, error: KafkaError | None) -> None:
    """Put the error of a partition's acknowledgements, if there was one, into its answer."""
    if error is not None:
        answer.acknowledge_error_code = error.code
        answer.acknowledge_error_message = error.message
