"""What becomes of the states of a group's share partitions: initialized, altered, deleted.

The states are kept by the share coordinator, which may be on another broker. So each of these has
two steps: the group's coordinator notes what is to be done, and once the share coordinator has done
it, that it is done. If the second step is missing, a later request finds the first and goes on.
Every change is one record. The source is Kafka 4.3's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.share.group import ShareGroup
from kraftrio.broker.coordinator.groups.share.parts import ShareParts
from kraftrio.broker.coordinator.groups.share.ports import StatesToInitialize
from kraftrio.broker.coordinator.groups.share.state_progress import (
    Partitions,
    StateProgress,
    TopicProgress,
    joined,
)
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponseTopic,
)


class Alteration(NamedTuple):
    """The result of a request to alter offsets: states to initialize, and the answer after that."""

    topics: list[AlterShareGroupOffsetsResponseTopic]
    states: StatesToInitialize


class Deletion(NamedTuple):
    """The result of a request to delete offsets: states to delete, and what is refused."""

    partitions: Partitions
    refused: list[DeleteShareGroupOffsetsResponseTopic]


class ShareStates:
    """See the module."""

    def __init__(self, parts: ShareParts) -> None:
        self._parts = parts

    # --- initialization ---

    def initialized(self, group_id: str, partitions: Partitions, now: Now) -> Outcome:
        """Note that states were initialized."""
        group = self._parts.registry.find(group_id, ShareGroup)
        if group is None:
            return Outcome()
        topics = self._parts.progress_of(partitions.items(), now)
        return self._store(group, _progress(group).with_initialized(topics))

    def not_initialized(self, group_id: str, partitions: Partitions, now: Now) -> Outcome:
        """Note that states could not be initialized; a later heartbeat asks for them again."""
        group = self._parts.registry.find(group_id, ShareGroup)
        if group is None or group.states is None or not group.states.initializing:
            return Outcome()
        topics = self._parts.progress_of(partitions.items(), now)
        return self._store(group, group.states.without_initializing(topics))

    def partitions(self, group_id: str) -> Partitions:
        """The partitions whose states are initialized; none if the group does not exist."""
        group = self._parts.registry.find(group_id, ShareGroup)
        return {} if group is None else _progress(group).initialized_partitions

    # --- offsets that are altered ---

    def alter(
        self, group_id: str, topics: Iterable[AlterShareGroupOffsetsRequestTopic], now: Now
    ) -> Outcome:
        """Begin to set start offsets; a group that does not exist is made.

        The response is an `Alteration`.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND (it is of another kind), NON_EMPTY_GROUP.
        """
        group = self._parts.find_or_make(group_id)
        _check_empty(group)
        answers = []
        initializing: dict[bytes, TopicProgress] = {}
        start_offsets: dict[bytes, dict[int, int]] = {}
        for asked in topics:
            topic = self._parts.metadata.topic(asked.topic_name)
            count = 0 if topic is None else topic.partition_count
            answer = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
            offsets: dict[int, int] = {}
            for partition in asked.partitions:
                index = partition.partition_index
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if 0 <= index < count:
                    code = ErrorCode.NONE
                    offsets[index] = partition.start_offset
                answer.partitions.append(
                    AlterShareGroupOffsetsResponsePartition(
                        partition_index=index,
                        error_code=code,
                        error_message=None if code is ErrorCode.NONE else code.sentence,
                    )
                )
            answers.append(answer)
            if topic is not None:
                answer.topic_id = topic.topic_id
                known = TopicProgress(topic.name, frozenset(offsets), now.wall_ms)
                initializing[topic.topic_id] = known
                if offsets:
                    start_offsets[topic.topic_id] = offsets
        states = StatesToInitialize(group_id, group.epoch, start_offsets)
        if not initializing:
            return Outcome(response=Alteration(answers, states))
        outcome = self._store(group, _progress(group).with_initializing(initializing))
        outcome.response = Alteration(answers, states)
        return outcome

    # --- offsets that are deleted ---

    def begin_deletion(self, group_id: str, topic_names: Iterable[str]) -> Outcome:
        """Begin to delete the states of topics. The response is a `Deletion`.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._parts.find(group_id)
        _check_empty(group)
        deletion = Deletion({}, [])
        if group.states is None:
            return Outcome(response=deletion)
        deleted: dict[bytes, frozenset[int]] = {}
        for name in topic_names:
            topic = self._parts.metadata.topic(name)
            if topic is not None and topic.topic_id in group.states.initialized:
                deleted[topic.topic_id] = group.states.initialized[topic.topic_id].partitions
            elif topic is not None and topic.topic_id in group.states.deleting:
                deleted[topic.topic_id] = frozenset(range(topic.partition_count))
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                reason = "There is no offset information to delete."
                deletion.refused.append(
                    DeleteShareGroupOffsetsResponseTopic(
                        topic_name=name,
                        error_code=code,
                        error_message=code.sentence if topic is None else reason,
                    )
                )
        outcome = self._store(group, group.states.with_deleting(deleted.keys()))
        outcome.response = deletion._replace(partitions=deleted)
        return outcome

    def end_deletion(self, group_id: str, topic_ids: Collection[bytes]) -> Outcome:
        """Note that the states of topics are deleted."""
        group = self._parts.registry.find(group_id, ShareGroup)
        if group is None or group.states is None:
            return Outcome()
        return self._store(group, group.states.without_deleting(topic_ids))

    # --- groups and topics that are deleted ---

    def begin_deletion_of_group(self, group_id: str, now: Now) -> Outcome:
        """Begin to delete all states of a group. The response is their partitions by topic id.

        For a group that is no share group nothing is done.

        Raises:
            KafkaError: NON_EMPTY_GROUP.
        """
        group = self._parts.registry.find(group_id, ShareGroup)
        if group is None:
            return Outcome(response={})
        _check_empty(group)
        if group.states is None:
            return Outcome(response={})
        states = group.states
        image = self._parts.metadata.image
        unfinished = {
            topic_id: TopicProgress(
                topic.name, frozenset(range(topic.partition_count)), now.wall_ms
            )
            for topic_id in states.deleting
            if (topic := image.topic_by_id(topic_id)) is not None
        }
        deleting = joined(joined(states.initialized, states.initializing), unfinished)
        outcome = self._store(group, StateProgress(deleting=frozenset(deleting)))
        outcome.response = {topic_id: topic.partitions for topic_id, topic in deleting.items()}
        return outcome

    def forget_topics(self, topic_ids: Iterable[bytes]) -> list[CoordinatorRecord]:
        """Make the records that forget the states of deleted topics; the share coordinator does so
        by itself."""
        gone = frozenset(topic_ids)
        records = []
        for group in self._parts.registry.all_of(ShareGroup):
            if group.states is not None:
                left = group.states.without_topics(gone)
                if left is not group.states:
                    records.append(self._parts.states_record(group.group_id, left))
        return records

    def _store(self, group: ShareGroup, states: StateProgress) -> Outcome:
        record = self._parts.states_record(group.group_id, states)
        return Outcome(records=[record], replay=True)


def _progress(group: ShareGroup) -> StateProgress:
    return group.states or StateProgress()


def _check_empty(group: ShareGroup) -> None:
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.sentence)


def partitions_of(states: StatesToInitialize) -> Mapping[bytes, frozenset[int]]:
    """The partitions whose states are to be initialized."""
    return {topic_id: frozenset(offsets) for topic_id, offsets in states.start_offsets.items()}
