"""The admin client on delegation tokens: what it sends, and what it makes of answers."""

from __future__ import annotations

import pytest

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.errors import (
    DelegationTokenNotFoundError,
    DelegationTokenRequestNotAllowedError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeNode, fake_cluster

HMAC = bytes(range(64))


async def test_made_and_described() -> None:
    """A token says who acts as whom; its secret is in no repr."""
    asked: list[CreateDelegationTokenRequest] = []

    def make(
        node: FakeNode, request: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        asked.append(request)
        return CreateDelegationTokenResponse(
            principal_type="User",
            principal_name="alice",
            token_requester_principal_type="User",
            token_requester_principal_name="admin",
            issue_timestamp_ms=1,
            expiry_timestamp_ms=2,
            max_timestamp_ms=3,
            token_id="id",
            hmac=HMAC,
        )

    def describe(
        node: FakeNode, request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        assert request.owners is not None
        assert [owner.principal_name for owner in request.owners] == ["alice"]
        renewer = DescribedDelegationTokenRenewer(principal_type="User", principal_name="bob")
        token = DescribedDelegationToken(
            principal_type="User",
            principal_name="alice",
            token_requester_principal_type="User",
            token_requester_principal_name="admin",
            issue_timestamp=1,
            expiry_timestamp=2,
            max_timestamp=3,
            token_id="id",
            hmac=HMAC,
            renewers=[renewer],
        )
        return DescribeDelegationTokenResponse(tokens=[token])

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.CREATE_DELEGATION_TOKEN, make)
        cluster.on(ApiKey.DESCRIBE_DELEGATION_TOKEN, describe)
        made = await admin.delegation_tokens.create(renewers=["User:bob"], owner="User:alice")
        assert [made] == await admin.delegation_tokens.describe(["User:alice"])
    assert (made.owner, made.requester, made.renewers) == (
        "User:alice",
        "User:admin",
        ("User:bob",),
    )
    assert made.password.startswith("AAECAwQF")
    assert made.password not in repr(made) and "hmac" not in repr(made)
    assert asked[0].max_lifetime_ms == -1
    assert asked[0].owner_principal_name == "alice"


async def test_renewed_and_expired() -> None:
    def renew(node: FakeNode, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
        return RenewDelegationTokenResponse(expiry_timestamp_ms=request.renew_period_ms + 1)

    def expire(
        node: FakeNode, request: ExpireDelegationTokenRequest
    ) -> ExpireDelegationTokenResponse:
        assert request.expiry_time_period_ms == -1
        return ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.RENEW_DELEGATION_TOKEN, renew)
        cluster.on(ApiKey.EXPIRE_DELEGATION_TOKEN, expire)
        assert await admin.delegation_tokens.renew(HMAC, period_ms=1000) == 1001
        with pytest.raises(DelegationTokenNotFoundError):
            await admin.delegation_tokens.expire(HMAC)


async def test_refused() -> None:
    def make(
        node: FakeNode, request: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        return CreateDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        )

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.CREATE_DELEGATION_TOKEN, make)
        with pytest.raises(DelegationTokenRequestNotAllowedError):
            await admin.delegation_tokens.create()
        with pytest.raises(ValueError, match="TYPE:NAME"):
            await admin.delegation_tokens.create(owner="alice")
