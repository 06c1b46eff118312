"""Acknowledgements of a request, partition by partition: of ShareAcknowledge, and those that come
with a ShareFetch.

Behaviour (Apache Kafka's): each partition's batches must be in order, with one type or one for each
offset (INVALID_REQUEST); what they say counts whole or not at all.  The answer comes when it has
been kept.  Very many batches are looked at in parts, and again when each part is taken: of these a
part may count where a lock has ended in between.

Called by `share_acknowledge` and `share_fetch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from kraftrio.base.deferred import Deferred
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.slices.request_parts import parts
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.share.sessions import SessionPartition
from kraftrio.broker.share.share_partitions import SharePartitions
from kraftrio.broker.share.state.acknowledgement import AcknowledgeCode, AcknowledgedBatch
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_fetch import AcknowledgementBatch

RENEW_VERSION: Final = 2

_AT_ONCE: Final = 250  # batches, or offsets with a type each

_MOST_TYPES: Final = 10_000  # read at once

_INVALID: Final = KafkaError(ErrorCode.INVALID_REQUEST)


class AcknowledgedPartition(Protocol):
    """A partition of either request."""

    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgedTopic(Protocol):
    """A topic of either request."""

    topic_id: bytes

    @property
    def partitions(self) -> Sequence[AcknowledgedPartition]: ...


class Acknowledgements:
    """Those of one request.

    Args:
        has_renewals: does the request say that it has some?

    Attributes:
        errors: by partition, in the order of the request; None: it counts. Complete after `wait`.
    """

    def __init__(
        self,
        share_partitions: SharePartitions,
        metadata: MetadataCache,
        context: RequestContext,
        group_id: str,
        member_id: str,
        *,
        has_renewals: bool,
    ) -> None:
        self._share_partitions = share_partitions
        self._metadata = metadata
        self._context = context
        self._group_id = group_id
        self._member_id = member_id
        self._has_renewals = has_renewals and context.api_version >= RENEW_VERSION
        may_renew = context.api_version >= RENEW_VERSION
        self._last_type = AcknowledgeCode.RENEW if may_renew else AcknowledgeCode.REJECT
        self._waiting: list[tuple[SessionPartition, Deferred[KafkaError | None]]] = []
        self.errors: dict[SessionPartition, KafkaError | None] = {}

    def begin(self, topics: Iterable[AcknowledgedTopic]) -> Work[None]:
        """Take all acknowledgements."""
        for topic in topics:
            topic_id = topic.topic_id
            error = self._check_topic(topic_id)
            for partition in topic.partitions:
                named = SessionPartition(topic_id, partition.partition_index)
                self.errors[named] = error
                if error is None:
                    yield from self._acknowledge(named, partition.acknowledgement_batches)
            yield None

    def _check_topic(self, topic_id: bytes) -> KafkaError | None:
        name = self._metadata.topic_name(topic_id)
        if name is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        resource = Resource(ResourceType.TOPIC, name)
        if not self._context.is_authorized(AclOperation.READ, resource):
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return None

    def _acknowledge(
        self, named: SessionPartition, asked: Sequence[AcknowledgementBatch]
    ) -> Work[None]:
        batches = yield from self._checked(asked)
        if batches is None:
            self.errors[named] = _INVALID
            return
        try:
            led = self._share_partitions.find(self._group_id, named)
            if len(batches) > _AT_ONCE:
                for part in parts(batches, _AT_ONCE):
                    led.check(self._member_id, part)
                    yield None
            for part in parts(batches, _AT_ONCE):
                self._waiting.append((named, led.acknowledge(self._member_id, part)))
                yield None
        except KafkaError as error:
            self.errors[named] = error

    def _checked(
        self, asked: Sequence[AcknowledgementBatch]
    ) -> Work[list[AcknowledgedBatch] | None]:
        """The batches of a partition; None where they are not in order."""
        batches: list[AcknowledgedBatch] = []
        last_type = self._last_type
        end = -1
        for batch in asked:
            first, last = batch.first_offset, batch.last_offset
            count = len(batch.acknowledge_types)
            if not end <= first <= last or count == 0 or (count > 1 and last - first + 1 != count):
                return None
            types: list[int] = []
            for kind in batch.acknowledge_types:
                if not 0 <= kind <= last_type:
                    return None
                if kind == AcknowledgeCode.RENEW and not self._has_renewals:
                    return None
                types.append(kind)
                if not len(types) % _MOST_TYPES:
                    yield None
            for start in range(0, count, _AT_ONCE):
                some = types[start : start + _AT_ONCE]
                some_last = last if count == 1 else first + start + len(some) - 1
                batches.append(AcknowledgedBatch(first + start, some_last, some))
                if len(batches) % _AT_ONCE == 0:
                    yield None
            end = last
        return batches

    def wait(self) -> Work[None]:
        """Wait until all that counts is kept."""
        for named, answer in self._waiting:
            if not answer.done:
                yield answer
            self.errors[named] = self.errors[named] or answer.value
        self._waiting.clear()
