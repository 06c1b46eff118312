"""Requests of transactions."""

from __future__ import annotations

from typing import Any

from kraftrio.wire.protocol.api import ApiKey
from tests.conformance.cases.access.groups import committed
from tests.conformance.cases.access.things import (
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Case,
    Fields,
    Things,
)

_PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def _transaction(one: Things, **more: Any) -> Fields:
    return {"transactional_id": one.transactional_ids[0], **_PRODUCER, **more}


def _added(one: Things) -> Fields:
    return {
        "v3_and_below_transactional_id": one.transactional_ids[0],
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": topic, "partitions": [0]} for topic in one.topics],
    }


TRANSACTIONS = {
    "add partitions to txn": Case(
        ApiKey.ADD_PARTITIONS_TO_TXN, ((TRANSACTIONAL_ID, WRITE), (TOPIC, WRITE)), _added, 3
    ),
    "add partitions to txn, of a broker": Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ((CLUSTER, CLUSTER_ACTION),),
        lambda one: {
            "transactions": [_transaction(one, topics=[{"name": one.topics[0], "partitions": [0]}])]
        },
    ),
    "add offsets to txn": Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        ((TRANSACTIONAL_ID, WRITE), (GROUP, READ)),
        lambda one: _transaction(one, group_id=one.groups[0]),
    ),
    "add offsets to txn, no group": Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        ((TRANSACTIONAL_ID, WRITE),),
        lambda one: _transaction(one, group_id=one.groups[0]),
    ),
    "end txn": Case(
        ApiKey.END_TXN,
        ((TRANSACTIONAL_ID, WRITE),),
        lambda one: _transaction(one, committed=True),
    ),
    "txn offset commit": Case(
        ApiKey.TXN_OFFSET_COMMIT,
        ((TRANSACTIONAL_ID, WRITE), (GROUP, READ), (TOPIC, READ)),
        lambda one: _transaction(one, group_id=one.groups[0], topics=committed(one)),
        4,
    ),
    "txn offset commit, no group": Case(
        ApiKey.TXN_OFFSET_COMMIT,
        ((TRANSACTIONAL_ID, WRITE), (TOPIC, READ)),
        lambda one: _transaction(one, group_id=one.groups[0], topics=committed(one)),
        4,
    ),
    "write txn markers": Case(
        ApiKey.WRITE_TXN_MARKERS,
        ((CLUSTER, CLUSTER_ACTION),),
        lambda one: {
            "markers": [
                {
                    **_PRODUCER,
                    "transaction_result": False,
                    "topics": [{"name": one.topics[2], "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
    ),
    "list transactions": Case(
        ApiKey.LIST_TRANSACTIONS, ((TRANSACTIONAL_ID, DESCRIBE),), lambda _one: {}
    ),
    "describe transactions": Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        ((TRANSACTIONAL_ID, DESCRIBE),),
        lambda one: {"transactional_ids": list(one.transactional_ids)},
    ),
}
