"""What is required of a heartbeat of a consumer group: its fields, and the epoch that it names.

Codes and messages are Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Collection

from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.consumer.state.member import (
    ConsumerMember,
    Owned,
    owns_only,
)
from kraftrio.broker.coordinator.groups.modern.member_state import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import ConsumerGroupHeartbeatRequest

_CLIENT_MADE_IDS_VERSION = 1  # KIP-1082


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]
) -> None:
    """Raise KafkaError unless the fields of a request fit together."""
    epoch = request.member_epoch
    if api_version >= _CLIENT_MADE_IDS_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _check_text(request.member_id, "MemberId")
    _check_text(request.group_id, "GroupId")
    _check_text(request.instance_id, "InstanceId")
    _check_text(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or any(True for _ in request.topic_partitions):
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _check_text(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """Raise KafkaError unless a group takes one more member, or has this one."""
    if len(group.members) >= max_size and not group.has_member(member_id):
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raise KafkaError unless a member is in the epoch that it names.

    The previous epoch will do, too, for a member that did not get the current one: it may own
    nothing but what it has in the current epoch.
    """
    current = member.member_epoch
    if epoch in (JOIN_EPOCH, current):
        return
    is_previous = epoch < current and epoch == member.previous_member_epoch
    if is_previous and owns_only(owned, member.assigned):
        return
    kind = "greater" if epoch > current else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {kind} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({current}). The member must abandon all its partitions and rejoin.",
    )


def check_instance(
    member: ConsumerMember | None, member_id: str, instance_id: str
) -> ConsumerMember:
    """Return the member with an instance id.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID: there is no such member; FENCED_INSTANCE_ID: it has another
            member id.
    """
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def check_released(member: ConsumerMember, member_id: str) -> None:
    """Raise KafkaError unless a static member has left, so that another may take its place."""
    if member.member_epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {member.instance_id} cannot join the "
            f"group because the instance id is owned by {member.member_id} member.",
        )
