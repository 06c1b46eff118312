"""The admin client on users: what it sends, and what it makes of answers."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.security.scram_users import (
    ScramCredentialInfo,
    ScramDeletion,
    ScramMechanism,
    ScramPassword,
)
from kraftrio.clients.errors import ResourceNotFoundError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeNode, fake_cluster

# RFC 7677, section 3: the password "pencil".
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SALTED = bytes.fromhex("c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d")


async def test_described() -> None:
    def answer(
        node: FakeNode, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        alice = DescribeUserScramCredentialsResult(
            user="alice", credential_infos=[CredentialInfo(mechanism=2, iterations=4096)]
        )
        bob = DescribeUserScramCredentialsResult(
            user="bob", error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message="no bob"
        )
        return DescribeUserScramCredentialsResponse(
            results=[alice] if request.users is None else [alice, bob]
        )

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, answer)
        found = await admin.scram_users.describe()
        with pytest.raises(ResourceNotFoundError, match="no bob"):
            await admin.scram_users.describe(["alice", "bob"])
    assert dict(found) == {"alice": (ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096),)}


async def test_a_password_goes_out_salted() -> None:
    """As RFC 7677's example has it; a deletion goes beside."""
    asked: list[AlterUserScramCredentialsRequest] = []

    def answer(
        node: FakeNode, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        asked.append(request)
        users = [each.name for each in request.upsertions]
        users += [each.name for each in request.deletions]
        return AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult(user=user) for user in users]
        )

    given = ScramPassword("user", "pencil", ScramMechanism.SCRAM_SHA_256, salt=SALT)
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, answer)
        await admin.scram_users.alter([given, ScramDeletion("bob")])
        await admin.scram_users.alter([ScramPassword("user", "pencil")])
    sent, deleted = asked[0].upsertions[0], asked[0].deletions[0]
    assert "pencil" not in repr(given)
    assert (sent.name, sent.mechanism, sent.iterations, sent.salt) == (
        "user",
        1,
        4096,
        SALT,
    )
    assert bytes(sent.salted_password) == SALTED
    assert (deleted.name, deleted.mechanism) == ("bob", 2)
    assert len(asked[1].upsertions[0].salt) == 32


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (ScramPassword("a", ""), ValueError),
        (ScramPassword("a", "p", iterations=4095), ValueError),
        (ScramPassword("a", "p", iterations=16385), ValueError),
        (ScramDeletion(b"a"), TypeError),  # type: ignore[arg-type]
        ("alice", TypeError),
    ],
)
async def test_what_makes_no_sense_is_not_sent(change: Any, error: type[Exception]) -> None:
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        with pytest.raises(error):
            await admin.scram_users.alter([change])
