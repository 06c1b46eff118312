"""Delegation tokens, as the controller decides on them and ends them."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.base.secret import Secret
from kraftrio.kraft_meta.controller.control import TokenSettings
from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.kraft_meta.metadata.token_image import DelegationToken, token_hmac
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.security import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.unit.kraft_meta.controller.context import WALL_MS, ControllerContext

KEY = Secret("key of the cluster")
HOUR_MS = 3_600_000
SETTINGS = TokenSettings(KEY, max_lifetime_ms=10 * HOUR_MS, expiry_time_ms=2 * HOUR_MS)


def cluster(settings: TokenSettings = SETTINGS) -> ControllerContext:
    return ControllerContext(tokens=settings)


def ask(context: ControllerContext, message: Any, who: str = "alice", version: int = 3) -> Any:
    return context.send(TokenRequest(message, "User", who), version)


def create(context: ControllerContext, **fields: Any) -> CreateDelegationTokenResponse:
    fields.setdefault("max_lifetime_ms", -1)
    response = ask(context, CreateDelegationTokenRequest(**fields))
    assert isinstance(response, CreateDelegationTokenResponse)
    return response


def renew(context: ControllerContext, hmac: bytes, period_ms: int = -1, who: str = "alice") -> Any:
    message = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = ask(context, message, who)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(context: ControllerContext, hmac: bytes, period_ms: int, who: str = "alice") -> Any:
    message = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = ask(context, message, who)
    return answer.error_code, answer.expiry_timestamp_ms


def test_a_token_is_made_of_its_id_and_the_secret() -> None:
    context = cluster()
    made = create(
        context, renewers=[CreatableRenewers(principal_type="User", principal_name="bob")]
    )
    assert made.error_code == ErrorCode.NONE
    assert made.hmac == token_hmac(KEY, made.token_id)
    assert (made.principal_name, made.token_requester_principal_name) == ("alice", "alice")
    times = (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms)
    assert times == (WALL_MS, WALL_MS + 2 * HOUR_MS, WALL_MS + 10 * HOUR_MS)
    assert context.image.delegation_tokens[made.token_id] == DelegationToken(
        made.token_id, "User:alice", "User:alice", ("User:bob",), *[times[0], times[2], times[1]]
    )


def test_a_token_may_be_another_s_and_live_shorter() -> None:
    context = cluster()
    made = create(
        context, owner_principal_type="User", owner_principal_name="carol", max_lifetime_ms=HOUR_MS
    )
    assert (made.principal_name, made.token_requester_principal_name) == ("carol", "alice")
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == WALL_MS + HOUR_MS
    assert create(context, max_lifetime_ms=99 * HOUR_MS).max_timestamp_ms == WALL_MS + 10 * HOUR_MS
    assert renew(context, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(context, made.hmac, who="carol")[0] == ErrorCode.NONE


def test_without_a_secret_there_are_no_tokens() -> None:
    context = cluster(TokenSettings())
    assert create(context).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert renew(context, b"x")[0] == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert expire(context, b"x", -1)[0] == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert context.controller._tokens.next_deadline_ms() is None


def test_renewers_are_users() -> None:
    group = CreatableRenewers(principal_type="Group", principal_name="x")
    assert create(cluster(), renewers=[group]).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_an_owner_has_a_type() -> None:
    made = create(cluster(), owner_principal_name="bob")
    assert made.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_a_token_is_renewed_up_to_its_longest_life() -> None:
    context = cluster()
    bob = CreatableRenewers(principal_type="User", principal_name="bob")
    token = create(context, renewers=[bob])
    context.now_ms = HOUR_MS
    assert renew(context, token.hmac) == (ErrorCode.NONE, WALL_MS + 3 * HOUR_MS)
    assert renew(context, token.hmac, 60_000, "bob") == (0, WALL_MS + HOUR_MS + 60_000)
    assert renew(context, token.hmac, 99 * HOUR_MS)[1] == WALL_MS + 3 * HOUR_MS
    assert renew(context, token.hmac, who="eve")[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(context, b"guess")[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    for hour in (2.5, 4, 5.5, 7, 8.5):
        context.now_ms = hour * HOUR_MS
        last = renew(context, token.hmac)
    assert last == (ErrorCode.NONE, WALL_MS + 10 * HOUR_MS)


def test_a_token_ends_at_once_or_later() -> None:
    context = cluster()
    first, second = create(context), create(context)
    assert expire(context, first.hmac, 5000, "eve")[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(context, first.hmac, 5000) == (ErrorCode.NONE, WALL_MS + 5000)
    context.now_ms = 5001
    assert expire(context, first.hmac, 5000)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert renew(context, first.hmac)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(context, second.hmac, -1) == (ErrorCode.NONE, WALL_MS + 5001)
    assert list(context.image.delegation_tokens) == [first.token_id]
    assert expire(context, second.hmac, -1)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert expire(context, first.hmac, -1)[0] == ErrorCode.NONE


def test_tokens_whose_time_is_up_are_removed_when_it_is_looked() -> None:
    context = cluster(SETTINGS)
    create(context, max_lifetime_ms=HOUR_MS // 2)
    kept = create(context)
    context.sleep(HOUR_MS - 1)
    assert len(context.image.delegation_tokens) == 2
    context.sleep(2)
    assert list(context.image.delegation_tokens) == [kept.token_id]


@pytest.mark.parametrize("version", [1, 2])
def test_older_versions_do_not_name_the_requester(version: int) -> None:
    response = ask(cluster(), CreateDelegationTokenRequest(max_lifetime_ms=-1), version=version)
    assert (response.principal_name, response.token_requester_principal_name) == ("alice", "")


def test_the_next_controller_knows_the_tokens() -> None:
    context = cluster()
    token = create(context)
    context.fail_over()
    assert renew(context, token.hmac)[0] == ErrorCode.NONE
