"""AlterUserScramCredentials, as the controller decides on it, and a cluster's first users."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.metadata.scram_image import ScramUser, credential_record
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kraftrio.wire.sasl.scram_keys import ScramMechanism, credential_of
from tests.unit.kraft_meta.controller.context import ControllerContext

SHA_256, SHA_512 = ScramMechanism
TWICE = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)
DONE = (ErrorCode.NONE, None)
Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


def upsert(
    user: str, mechanism: int = SHA_256, iterations: int = 4096, salted: bytes = b"salted"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted,
    )


def delete(user: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def alter(
    context: ControllerContext, *alterations: Alteration
) -> dict[str, tuple[ErrorCode, str | None]]:
    response = context.send(
        AlterUserScramCredentialsRequest(
            deletions=[one for one in alterations if isinstance(one, ScramCredentialDeletion)],
            upsertions=[one for one in alterations if isinstance(one, ScramCredentialUpsertion)],
        )
    )
    assert isinstance(response, AlterUserScramCredentialsResponse)
    answers = {one.user: (one.error_code, one.error_message) for one in response.results}
    assert len(answers) == len(response.results)
    return answers


def test_credentials_are_made_replaced_and_deleted() -> None:
    context = ControllerContext()
    assert alter(context, upsert("alice"), upsert("bob", SHA_512)) == {"alice": DONE, "bob": DONE}
    kept = context.image.scram_credentials
    assert kept[ScramUser("alice", SHA_256)] == credential_of(SHA_256, b"salted", b"salt", 4096)
    assert kept[ScramUser("bob", SHA_512)] == credential_of(SHA_512, b"salted", b"salt", 4096)
    assert alter(context, upsert("alice", iterations=8192)) == {"alice": DONE}
    assert context.image.scram_credentials[ScramUser("alice", SHA_256)].iterations == 8192
    assert alter(context, delete("alice"), upsert("carol")) == {"alice": DONE, "carol": DONE}
    assert [user.name for user in sorted(context.image.scram_credentials)] == ["bob", "carol"]


@pytest.mark.parametrize(
    ("alteration", "code", "message"),
    [
        (upsert(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (delete(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsert("u", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (delete("u", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsert("u", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsert("u", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            upsert("u", salted=b""),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Salted password must not be empty",
        ),
        (
            delete("u"),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_what_is_refused_leaves_the_others(
    alteration: Alteration, code: ErrorCode, message: str
) -> None:
    context = ControllerContext()
    answers = alter(context, alteration, upsert("other"))
    assert answers == {alteration.name: (code, message), "other": DONE}
    assert list(context.image.scram_credentials) == [ScramUser("other", SHA_256)]


def test_a_user_who_is_named_twice_is_left_as_it_was() -> None:
    context = ControllerContext()
    alter(context, upsert("alice"))
    before = context.image.scram_credentials
    assert alter(context, delete("alice"), upsert("alice", SHA_512)) == {"alice": TWICE}
    assert alter(context, upsert("alice", SHA_512), upsert("alice")) == {"alice": TWICE}
    assert alter(context, delete("alice"), delete("alice"), upsert("alice")) == {"alice": TWICE}
    assert context.image.scram_credentials == before


def test_the_first_refusal_of_a_user_stands() -> None:
    answers = alter(ControllerContext(), delete("alice"), upsert("alice"))
    assert answers["alice"][0] == ErrorCode.RESOURCE_NOT_FOUND


def test_a_new_cluster_has_its_first_users() -> None:
    """Once: a controller that takes over later gives nobody anything."""
    first = credential_record(
        ScramUser("admin", 1), credential_of(SHA_256, b"salted", b"salt", 4096)
    )
    context = ControllerContext(first_credentials=(first,))
    assert list(context.image.scram_credentials) == [ScramUser("admin", SHA_256)]
    alter(context, delete("admin"))
    context.fail_over()
    assert not context.image.scram_credentials
