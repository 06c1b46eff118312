"""Requests of producers and consumers about partitions, and what it takes to send them."""

from __future__ import annotations

from typing import Any

from kraftrio.wire.protocol.acls import AclOperation
from kraftrio.wire.protocol.api import APIS, ApiKey
from tests.conformance.cases.access.things import (
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Case,
    Fields,
    Things,
    message,
)
from tests.conformance.cases.calls import batch_of


def _partitions(name: str, of_partition: Fields, *, of_topic: str = "name") -> Any:
    """Fields of a request about partition 0 of each topic."""
    return lambda one: {"topics": [{of_topic: topic, name: [of_partition]} for topic in one.topics]}


def _produced(one: Things, *, by_id: bool = False, **batch: Any) -> Fields:
    data = [{"index": 0, "records": batch_of(b"v", **batch)}]
    named = [{"topic_id": i} for i in one.ids] if by_id else [{"name": n} for n in one.topics]
    transactional_id = one.transactional_ids[0] if batch else None
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{**topic, "partition_data": data} for topic in named],
    }


def _produced_in_transaction(one: Things) -> Fields:
    return _produced(one, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)


def _fetched(one: Things, *, by_id: bool = True, replica_id: int = -1) -> Fields:
    named = [{"topic_id": i} for i in one.ids] if by_id else [{"topic": n} for n in one.topics]
    partitions = [{"partition": 0, "partition_max_bytes": 1 << 20}]
    fields: Fields = {
        "max_bytes": 1 << 20,
        "topics": [{**topic, "partitions": partitions} for topic in named],
    }
    if replica_id >= 0:
        state = message(APIS[ApiKey.FETCH].request, {}).replica_state
        state.replica_id = replica_id
        fields["replica_state"] = state
    return fields


_END_OF_EPOCH = _partitions("partitions", {"partition": 0, "leader_epoch": 0}, of_topic="topic")

DATA = {
    "produce": Case(ApiKey.PRODUCE, ((TOPIC, WRITE),), _produced, 12),
    "produce by id": Case(
        ApiKey.PRODUCE, ((TOPIC, WRITE),), lambda one: _produced(one, by_id=True)
    ),
    "produce in a transaction": Case(
        ApiKey.PRODUCE, ((TRANSACTIONAL_ID, WRITE),), _produced_in_transaction, 11
    ),
    "fetch": Case(ApiKey.FETCH, ((TOPIC, READ),), lambda one: _fetched(one, by_id=False), 12),
    "fetch by id": Case(ApiKey.FETCH, ((TOPIC, READ),), _fetched),
    "fetch as a follower": Case(
        ApiKey.FETCH, ((CLUSTER, CLUSTER_ACTION),), lambda one: _fetched(one, replica_id=5)
    ),
    "list offsets": Case(
        ApiKey.LIST_OFFSETS,
        ((TOPIC, DESCRIBE),),
        lambda one: {
            "replica_id": -1,
            **_partitions("partitions", {"partition_index": 0, "timestamp": -1})(one),
        },
    ),
    "offset for leader epoch": Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, ((TOPIC, DESCRIBE),), _END_OF_EPOCH
    ),
    "offset for leader epoch, of a broker": Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, ((CLUSTER, CLUSTER_ACTION),), _END_OF_EPOCH
    ),
    "delete records": Case(
        ApiKey.DELETE_RECORDS,
        ((TOPIC, DELETE),),
        lambda one: {
            "timeout_ms": 5000,
            **_partitions("partitions", {"partition_index": 0, "offset": 0})(one),
        },
    ),
    "describe producers": Case(
        ApiKey.DESCRIBE_PRODUCERS,
        ((TOPIC, READ),),
        lambda one: {"topics": [{"name": t, "partition_indexes": [0]} for t in one.topics]},
    ),
    "init producer id": Case(
        ApiKey.INIT_PRODUCER_ID,
        ((CLUSTER, AclOperation.IDEMPOTENT_WRITE),),
        lambda _one: {"transactional_id": None, "transaction_timeout_ms": 1000},
    ),
    "init producer id, of who writes a topic": Case(
        ApiKey.INIT_PRODUCER_ID,
        ((TOPIC, WRITE),),
        lambda _one: {"transactional_id": None, "transaction_timeout_ms": 1000},
    ),
    "init producer id, transactional": Case(
        ApiKey.INIT_PRODUCER_ID,
        ((TRANSACTIONAL_ID, WRITE),),
        lambda one: {
            "transactional_id": one.transactional_ids[0],
            "transaction_timeout_ms": 60_000,
        },
    ),
}
