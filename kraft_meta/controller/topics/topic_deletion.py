"""DeleteTopics: decisions on the uncommitted image.

Behaviour (Kafka's): each topic succeeds or fails alone. What a request says twice has one entry in
the answer, an error, and is not deleted: the same name, the same id, or the name of a topic that it
gives by id as well.
Version notes: v3 knows TOPIC_DELETION_DISABLED, v6 takes names or ids (KIP-516).

Called by: controller.py. Kafka's counterpart: ControllerApis, ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kraftrio.kraft_meta.controller.control import ControllerResult, DecisionContext
from kraftrio.kraft_meta.metadata.image import MetadataImage, TopicImage
from kraftrio.kraft_meta.metadata.records import MetadataRecord, RemoveTopicRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kraftrio.wire.primitives import ZERO_UUID

_FIRST_VERSION_WITH_DISABLED_CODE = 3


def delete_topics(request: DeleteTopicsRequest, context: DecisionContext) -> ControllerResult:
    """Decide on each topic of the request, by name or by id."""
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    if not context.config.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        if context.api_version < _FIRST_VERSION_WITH_DISABLED_CODE:
            code = ErrorCode.INVALID_REQUEST
        disabled = KafkaError(code, "Topic deletion is disabled.")
        refused = [_failed(state.name, state.topic_id, disabled) for state in states]
        return ControllerResult([], DeleteTopicsResponse(responses=refused))
    records: list[MetadataRecord] = []
    results: list[DeletableTopicResult] = []
    deletions = _Deletions(states, context.image)
    for state in states:
        if deletions.is_answered(state):
            continue
        try:
            topic = deletions.topic(state)
        except KafkaError as error:
            results.append(_failed(state.name, state.topic_id, error))
            continue
        if deletions.is_by_name_and_id(topic):
            text = "The provided topic name maps to an ID that was already supplied."
            twice = KafkaError(ErrorCode.INVALID_REQUEST, text)
            results.append(_failed(topic.name, topic.topic_id, twice))
            continue
        try:
            context.mutations.take(topic.partition_count)
        except KafkaError as error:
            results.append(_failed(topic.name, topic.topic_id, error))
            continue
        records.append(RemoveTopicRecord(topic.topic_id))
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
    return ControllerResult(records, DeleteTopicsResponse(responses=results))


class _Deletions:
    """What one request names, how often, and what has been answered."""

    def __init__(self, states: Sequence[DeleteTopicState], image: MetadataImage) -> None:
        self._image = image
        self._names = Counter(s.name for s in states if s.topic_id == ZERO_UUID)
        self._ids = Counter(s.topic_id for s in states if s.name is None)
        self._answered: set[tuple[str | None, bytes]] = set()

    def is_answered(self, state: DeleteTopicState) -> bool:
        """Whether an earlier entry of the request said the same; it counts as answered now."""
        if (state.name is None) == (state.topic_id == ZERO_UUID):
            return False  # it names nothing, or too much: each of these is refused individually
        key = state.name, state.topic_id
        if key in self._answered:
            return True
        self._answered.add(key)
        return False

    def topic(self, state: DeleteTopicState) -> TopicImage:
        """Find the topic that an entry means (KafkaError: none, or named twice)."""
        name, topic_id = state.name, state.topic_id
        if name is None:
            if topic_id == ZERO_UUID:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."
                )
            if self._ids[topic_id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            return topic
        if topic_id != ZERO_UUID:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
            )
        if self._names[name] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        topic = self._image.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def is_by_name_and_id(self, topic: TopicImage) -> bool:
        """Whether the request names a topic once in each way; it counts as answered in both."""
        if self._names[topic.name] != 1 or self._ids[topic.topic_id] != 1:
            return False
        self._answered |= {(topic.name, ZERO_UUID), (None, topic.topic_id)}
        return True


def _failed(name: str | None, topic_id: bytes, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=error.code,
        error_message=error.message or error.code.sentence,
    )
