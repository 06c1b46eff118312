"""Requests of groups: their members, their offsets, their administrators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.protocol.api import APIS, ApiKey
from tests.conformance.cases.access.things import (
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    Case,
    Fields,
    Things,
    message,
)


def _member(one: Things, **more: Any) -> Fields:
    return {"group_id": one.groups[0], "member_id": "member", **more}


def _of_group(key: ApiKey, **more: Any) -> Case:
    """A request of a member that its group does not know."""
    return Case(key, ((GROUP, READ),), lambda one: _member(one, **more))


def _subscribed(key: ApiKey, names: Callable[[Things], list[str]]) -> Case:
    """A new member that subscribes to topics."""
    return Case(
        key,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: (
            {
                "group_id": one.groups[0],
                "member_id": "A" * 22,
                "member_epoch": 0,
                "rebalance_timeout_ms": 5000,
                "subscribed_topic_names": names(one),
                "topic_partitions": [],
            }
            if key is ApiKey.CONSUMER_GROUP_HEARTBEAT
            else {
                "group_id": one.groups[0],
                "member_id": "A" * 22,
                "member_epoch": 0,
                "subscribed_topic_names": names(one),
            }
        ),
    )


def committed(one: Things) -> list[Fields]:
    partition = {"partition_index": 0, "committed_offset": 0}
    return [{"name": topic, "partitions": [partition]} for topic in one.topics]


def _described(key: ApiKey, field: str, **more: Any) -> Case:
    return Case(key, ((GROUP, DESCRIBE),), lambda one: {field: list(one.groups), **more})


GROUPS = {
    "find coordinator of groups": Case(
        ApiKey.FIND_COORDINATOR,
        ((GROUP, DESCRIBE),),
        lambda one: {"key_type": 0, "coordinator_keys": list(one.groups)},
    ),
    "find coordinator of a group": Case(
        ApiKey.FIND_COORDINATOR,
        ((GROUP, READ),),
        lambda one: {"key_type": 0, "key": one.groups[0]},
        3,
    ),
    "find coordinator of transactional ids": Case(
        ApiKey.FIND_COORDINATOR,
        ((TRANSACTIONAL_ID, DESCRIBE),),
        lambda one: {"key_type": 1, "coordinator_keys": list(one.transactional_ids)},
    ),
    "find coordinator of a share partition": Case(
        ApiKey.FIND_COORDINATOR,
        ((CLUSTER, CLUSTER_ACTION),),
        lambda one: {
            "key_type": 2,
            "coordinator_keys": [f"{one.groups[0]}:AQEBAQEBAQEBAQEBAQEBAQ:0"],
        },
    ),
    "join group": Case(
        ApiKey.JOIN_GROUP,
        ((GROUP, READ),),
        lambda one: {
            "group_id": one.groups[0],
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"x"}],
        },
    ),
    "sync group": _of_group(
        ApiKey.SYNC_GROUP, generation_id=3, protocol_type="consumer", protocol_name="range"
    ),
    "heartbeat": _of_group(ApiKey.HEARTBEAT, generation_id=3),
    "leave group": Case(
        ApiKey.LEAVE_GROUP,
        ((GROUP, READ),),
        lambda one: {"group_id": one.groups[0], "members": [{"member_id": "member"}]},
    ),
    "offset commit": Case(
        ApiKey.OFFSET_COMMIT,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: {"group_id": one.groups[0], "topics": committed(one)},
        9,
    ),
    "offset commit, no topics": Case(
        ApiKey.OFFSET_COMMIT,
        ((GROUP, READ),),
        lambda one: {"group_id": one.groups[0], "topics": committed(one)},
        9,
    ),
    "offset commit by id": Case(
        ApiKey.OFFSET_COMMIT,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [
                {"topic_id": i, "partitions": [{"partition_index": 0, "committed_offset": 0}]}
                for i in one.ids
            ],
        },
    ),
    "offset fetch": Case(
        ApiKey.OFFSET_FETCH,
        ((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
        lambda one: {
            "groups": [
                {
                    "group_id": group,
                    "topics": [{"name": topic, "partition_indexes": [0]} for topic in one.topics],
                }
                for group in one.groups
            ]
        },
        9,
    ),
    "offset fetch of a group": Case(
        ApiKey.OFFSET_FETCH,
        ((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [{"name": topic, "partition_indexes": [0]} for topic in one.topics],
        },
        7,
    ),
    "offset fetch of all topics": Case(
        ApiKey.OFFSET_FETCH,
        ((GROUP, DESCRIBE),),
        lambda one: {"groups": [{"group_id": group, "topics": None} for group in one.groups]},
    ),
    "offset delete": Case(
        ApiKey.OFFSET_DELETE,
        ((GROUP, DELETE), (TOPIC, READ)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [{"name": t, "partitions": [{"partition_index": 0}]} for t in one.topics],
        },
    ),
    "describe groups": _described(
        ApiKey.DESCRIBE_GROUPS, "groups", include_authorized_operations=True
    ),
    "list groups": Case(ApiKey.LIST_GROUPS, ((GROUP, DESCRIBE),), lambda _one: {}),
    "delete groups": Case(
        ApiKey.DELETE_GROUPS, ((GROUP, DELETE),), lambda one: {"groups_names": list(one.groups)}
    ),
    "consumer group heartbeat": _subscribed(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda one: [one.topics[0]]
    ),
    "consumer group heartbeat, hidden topic": _subscribed(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda one: list(one.topics)
    ),
    "consumer group describe": _described(ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids"),
    "share group heartbeat": _subscribed(ApiKey.SHARE_GROUP_HEARTBEAT, lambda one: [one.topics[0]]),
    "share group heartbeat, hidden topic": _subscribed(
        ApiKey.SHARE_GROUP_HEARTBEAT, lambda one: list(one.topics)
    ),
    "share group describe": _described(ApiKey.SHARE_GROUP_DESCRIBE, "group_ids"),
    "streams group heartbeat": Case(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: _streams_heartbeat(one, one.topics[:1]),
    ),
    "streams group heartbeat, hidden topic": Case(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: _streams_heartbeat(one, one.topics[:2]),
    ),
    "streams group describe": _described(ApiKey.STREAMS_GROUP_DESCRIBE, "group_ids"),
    "share fetch": Case(
        ApiKey.SHARE_FETCH,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: _member(
            one,
            share_session_epoch=-1,
            max_bytes=0,
        ),
    ),
    "share acknowledge": Case(
        ApiKey.SHARE_ACKNOWLEDGE,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: _member(one, share_session_epoch=3),
    ),
    "describe share group offsets": Case(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
        lambda one: {
            "groups": [
                {
                    "group_id": group,
                    "topics": [{"topic_name": topic, "partitions": [0]} for topic in one.topics],
                }
                for group in one.groups
            ]
        },
    ),
    "alter share group offsets": Case(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [
                {
                    "topic_name": topic,
                    "partitions": [{"partition_index": 0, "start_offset": 0}],
                }
                for topic in one.topics
            ],
        },
    ),
    "delete share group offsets": Case(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ((GROUP, DELETE), (TOPIC, READ)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [{"topic_name": topic} for topic in one.topics],
        },
    ),
}


def _streams_heartbeat(one: Things, sources: tuple[str, ...]) -> Fields:
    request = APIS[ApiKey.STREAMS_GROUP_HEARTBEAT].request
    [of_topology] = [f for f in spec_of(request).fields if f.name == "topology"]
    assert isinstance(of_topology.element, type)
    topology = message(
        of_topology.element,
        {"epoch": 1, "subtopologies": [{"subtopology_id": "0", "source_topics": list(sources)}]},
    )
    return {
        "group_id": one.groups[0],
        "member_id": "A" * 22,
        "member_epoch": 0,
        "rebalance_timeout_ms": 5000,
        "process_id": "p",
        "topology": topology,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "client_tags": [],
    }
