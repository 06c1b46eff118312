"""What only nodes of a cluster ask each other."""

from __future__ import annotations

from typing import Any

from kraftrio.wire.protocol.api import ApiKey
from tests.conformance.cases.access.things import ABSENT_ID, ALTER, CLUSTER, CLUSTER_ACTION, Case


def _of_state(key: ApiKey, **of_partition: Any) -> Case:
    """What only brokers ask the share coordinator."""
    return Case(
        key,
        ((CLUSTER, CLUSTER_ACTION),),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [{"topic_id": ABSENT_ID, "partitions": [{"partition": 0, **of_partition}]}],
        },
    )


SHARE_STATE = {
    "read share group state": _of_state(ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=1),
    "read share group state summary": _of_state(
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, leader_epoch=1
    ),
    "initialize share group state": _of_state(
        ApiKey.INITIALIZE_SHARE_GROUP_STATE, state_epoch=1, start_offset=0
    ),
    "write share group state": _of_state(
        ApiKey.WRITE_SHARE_GROUP_STATE, state_epoch=1, leader_epoch=1, start_offset=0
    ),
    "delete share group state": _of_state(ApiKey.DELETE_SHARE_GROUP_STATE),
}


def _of_node(key: ApiKey, **fields: Any) -> Case:
    """What only nodes of the cluster ask a controller."""
    return Case(key, ((CLUSTER, CLUSTER_ACTION),), lambda _one: fields, is_answer_compared=False)


def _of_voters(key: ApiKey, **fields: Any) -> Case:
    """A change of the quorum's voters, in another cluster."""
    return Case(key, ((CLUSTER, ALTER),), lambda _one: {"cluster_id": "other", **fields})


VOTERS = {
    "add raft voter": _of_voters(ApiKey.ADD_RAFT_VOTER),
    "remove raft voter": _of_voters(ApiKey.REMOVE_RAFT_VOTER),
}
NODES = {
    "fetch the metadata log": _of_node(ApiKey.FETCH, cluster_id="other"),
    "fetch snapshot": _of_node(ApiKey.FETCH_SNAPSHOT, cluster_id="other"),
    "vote": _of_node(ApiKey.VOTE, cluster_id="other"),
    "begin quorum epoch": _of_node(ApiKey.BEGIN_QUORUM_EPOCH, cluster_id="other"),
    "end quorum epoch": _of_node(ApiKey.END_QUORUM_EPOCH, cluster_id="other"),
    "broker registration": _of_node(ApiKey.BROKER_REGISTRATION, broker_id=77, cluster_id="other"),
    "broker heartbeat": _of_node(ApiKey.BROKER_HEARTBEAT, broker_id=77, broker_epoch=1),
    "alter partition": _of_node(ApiKey.ALTER_PARTITION, broker_id=77, broker_epoch=1),
    "allocate producer ids": _of_node(ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=77, broker_epoch=1),
    "assign replicas to dirs": _of_node(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS, broker_id=77, broker_epoch=1
    ),
}
