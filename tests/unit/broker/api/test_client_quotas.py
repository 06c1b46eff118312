"""DescribeClientQuotas and AlterClientQuotas, as a broker answers them."""

from __future__ import annotations

from typing import Any

from kraftrio.broker.api.client_quotas import ClientQuotaHandlers
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    OpData,
)
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import ClusterContext, context

RATE = "producer_byte_rate"


def alter(cluster: ClusterContext, *users: str | None, value: float = 1000.0) -> list[Any]:
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasEntryData(
                entity=[AlterClientQuotasEntityData(entity_type="user", entity_name=user)],
                ops=[OpData(key=RATE, value=value)],
            )
            for user in users
        ]
    )
    answer = finish(handlers(cluster).alter_client_quotas(request, context(1)))
    response = answer.value if hasattr(answer, "value") else answer
    return list(response.entries)


def handlers(cluster: ClusterContext) -> ClientQuotaHandlers:
    return ClientQuotaHandlers(cluster.metadata, cluster)


def described(cluster: ClusterContext, *components: ComponentData) -> list[Any]:
    request = DescribeClientQuotasRequest(components=list(components))
    response = finish(handlers(cluster).describe_client_quotas(request, context(1)))
    encode(response, 1)
    assert response.entries is not None
    return [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [(value.key, value.value) for value in entry.values],
        )
        for entry in response.entries
    ]


def test_what_was_altered_is_described() -> None:
    cluster = ClusterContext()
    assert described(cluster) == []
    assert [one.error_code for one in alter(cluster, "a", None)] == [0, 0]
    everything = [([("user", "a")], [(RATE, 1000.0)]), ([("user", None)], [(RATE, 1000.0)])]
    assert sorted(described(cluster), key=repr) == everything
    exact = ComponentData(entity_type="user", match_type=0, match="a")
    assert described(cluster, exact) == everything[:1]
    nameless = ComponentData(entity_type="user", match_type=0, match="")
    assert described(cluster, nameless) == []  # the default is found by its match type alone


def test_many_changes_go_to_the_controller_in_parts() -> None:
    """Each entity has its answer; one that is named in two places is refused."""
    cluster = ClusterContext()
    users = [f"user-{number}" for number in range(600)]
    answers = alter(cluster, *users, users[0])
    codes = {one.entity[0].entity_name: one.error_code for one in answers}
    assert len(answers) == 600
    assert codes.pop(users[0]) == ErrorCode.INVALID_REQUEST
    assert set(codes.values()) == {ErrorCode.NONE}
    assert len(cluster.submitted) > 1
    assert len(described(cluster)) == 599


def test_too_many_changes_are_refused() -> None:
    cluster = ClusterContext()
    answers = alter(cluster, *(f"user-{number}" for number in range(10_001)))
    assert {one.error_code for one in answers} == {ErrorCode.POLICY_VIOLATION}
    assert cluster.submitted == []
