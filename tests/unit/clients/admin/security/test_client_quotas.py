"""The admin client on quotas: what it sends, and what it makes of answers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.security.client_quotas import QuotaEntity, QuotaFilter
from kraftrio.clients.errors import InvalidRequestError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryResponse,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasEntityData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeNode, fake_cluster


async def test_described() -> None:
    """Names, defaults and any given entity are distinguished, in the question and in the answer."""
    asked: list[DescribeClientQuotasRequest] = []

    def answer(
        node: FakeNode, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        asked.append(request)
        entity = [
            DescribeClientQuotasEntityData(entity_type="user", entity_name="alice"),
            DescribeClientQuotasEntityData(entity_type="client-id", entity_name=None),
        ]
        values = [ValueData(key="producer_byte_rate", value=1024.0)]
        return DescribeClientQuotasResponse(
            entries=[DescribeClientQuotasEntryData(entity=entity, values=values)]
        )

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.DESCRIBE_CLIENT_QUOTAS, answer)
        found = await admin.quotas.describe(QuotaFilter(user="alice", client_id="", ip="*"))
    assert found == {QuotaEntity(user="alice", client_id=""): {"producer_byte_rate": 1024.0}}
    assert [(each.entity_type, each.match_type, each.match) for each in asked[0].components] == [
        ("user", 0, "alice"),
        ("client-id", 1, None),
        ("ip", 2, None),
    ]


async def test_altered() -> None:
    """None removes; each entity has its own outcome."""
    asked: list[AlterClientQuotasRequest] = []

    def answer(node: FakeNode, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        asked.append(request)
        code = ErrorCode.INVALID_REQUEST
        user = AlterClientQuotasEntityData(entity_type="user", entity_name=None)
        address = AlterClientQuotasEntityData(entity_type="ip", entity_name="10.0.0.1")
        return AlterClientQuotasResponse(
            entries=[
                AlterClientQuotasEntryResponse(entity=[user]),
                AlterClientQuotasEntryResponse(error_code=code, entity=[address]),
            ]
        )

    everybody, address = QuotaEntity(user=""), QuotaEntity(ip="10.0.0.1")
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.ALTER_CLIENT_QUOTAS, answer)
        results = await admin.quotas.alter(
            {everybody: {"request_percentage": 50}, address: {"connection_creation_rate": None}},
            validate_only=True,
            raise_errors=False,
        )
    assert everybody not in results.errors
    assert isinstance(results.errors[address], InvalidRequestError)
    assert asked[0].validate_only
    sent = [(op.key, op.value, op.remove) for entry in asked[0].entries for op in entry.ops]
    assert sent == [("request_percentage", 50.0, False), ("connection_creation_rate", 0.0, True)]
    assert asked[0].entries[0].entity[0].entity_name is None


@pytest.mark.parametrize("value", ["1", True, math.nan])
async def test_what_is_no_number_is_not_sent(value: Any) -> None:
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        with pytest.raises(TypeError, match="producer_byte_rate must be a number"):
            await admin.quotas.alter({QuotaEntity(user="a"): {"producer_byte_rate": value}})
