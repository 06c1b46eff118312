"""What clients change is counted once for all brokers, wherever the active controller is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    OpData,
)
from tests.conformance.cluster_calls import Connect
from tests.conformance.cluster_process import Cluster

KEY = "controller_mutation_rate"
DEADLINE_S = 10.0


def alter(connect: Connect, value: float | None) -> None:
    """Set or remove the quota of any user, and wait until every broker knows."""
    change = AlterClientQuotasEntryData(
        entity=[AlterClientQuotasEntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key=KEY, value=value or 0.0, remove=value is None)],
    )
    (answer,) = connect(1).call(AlterClientQuotasRequest(entries=[change])).entries
    assert answer.error_code is ErrorCode.NONE
    for node_id in (1, 2, 3):
        client, deadline = connect(node_id), time.monotonic() + DEADLINE_S
        while len(client.call(DescribeClientQuotasRequest()).entries) != (value is not None):
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def rate_of_one(cluster: Cluster, connect: Connect) -> Iterator[None]:
    """One partition a second for any user."""
    alter(connect, 1.0)
    yield
    alter(connect, None)


def create(connect: Connect, node_id: int, name: str, count: int) -> tuple[ErrorCode, int]:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)],
        timeout_ms=10_000,
    )
    response: CreateTopicsResponse = connect(node_id).call(request)
    return response.topics[0].error_code, response.throttle_time_ms


@pytest.mark.usefixtures("rate_of_one")
def test_a_client_has_one_quota_with_all_brokers(
    connect: Connect, unique_topic: Callable[[], str]
) -> None:
    """Eleven seconds' worth at once, and what begins with it; then no broker lets anything in."""
    name = unique_topic()
    assert create(connect, 1, f"{name}-a", 8) == (ErrorCode.NONE, 0)
    assert create(connect, 2, f"{name}-b", 12) == (ErrorCode.NONE, 0)
    for node_id in (1, 2, 3):
        code, wait_ms = create(connect, node_id, f"{name}-c", 1)
        assert code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 4000 < wait_ms <= 9000
