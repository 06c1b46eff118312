"""The admin client's part for delegation tokens: short-lived logins that a user hands on.

Owns `DelegationTokenAdmin`, which programs reach as `Admin.delegation_tokens`, and the token. Who
has one logs in by SCRAM: its id is the user name, its hmac in Base64 the password, and the text of
`sasl_jaas_config` says `tokenauth="true"`.

Called by: `admin`. KIP-48, KIP-373 (tokens for others).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftrio.clients.admin.calls import Begin
from kraftrio.clients.arguments.several import Texts, several
from kraftrio.clients.arguments.times import Duration, Milliseconds, whole_milliseconds
from kraftrio.clients.arguments.values import text
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.security import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_BROKER_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token; times are in milliseconds since 1970.

    Attributes:
        owner: whom its holder acts as, such as "User:alice".
        requester: who made it.
        expiry_timestamp_ms: until then it is good, unless it is renewed.
        max_timestamp_ms: beyond that it cannot be renewed.
        hmac: the secret.
    """

    token_id: str
    owner: str
    requester: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    hmac: bytes = field(repr=False)
    renewers: tuple[str, ...] = ()

    @property
    def password(self) -> str:
        """The password for a login with the token."""
        return base64.b64encode(self.hmac).decode()


class DelegationTokenAdmin:
    """Administers delegation tokens.

    Args:
        begin: begins a call, which may take some milliseconds at most.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    async def create(
        self,
        *,
        renewers: Texts = (),
        max_lifetime_ms: Milliseconds | None = None,
        owner: str | None = None,
        timeout_ms: Duration | None = None,
    ) -> DelegationToken:
        """Make a token for the user who asks, or for another.

        Args:
            renewers: who else may renew and expire it, such as "User:bob".
            max_lifetime_ms: None: delegation.token.max.lifetime.ms.
            owner: None: the user who asks.

        Raises:
            DelegationTokenDisabledError: the brokers have no key for tokens.
            DelegationTokenRequestNotAllowedError: the client did not log in, or with a token.
            DelegationTokenAuthorizationError: the user may make no tokens for the owner.
        """
        owner_type, owner_name = (None, None) if owner is None else _principal("owner", owner)
        wanted = [_principal("a renewer", each) for each in several("renewers", renewers, str)]
        request = CreateDelegationTokenRequest(
            owner_principal_type=owner_type,
            owner_principal_name=owner_name,
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in wanted
            ],
            max_lifetime_ms=_period("max_lifetime_ms", max_lifetime_ms),
        )
        calls, deadline = self._begin(timeout_ms)
        made: CreateDelegationTokenResponse = await calls.ask_any(request, deadline, _code_of)
        owner_shown = f"{made.principal_type}:{made.principal_name}"
        requester = f"{made.token_requester_principal_type}:{made.token_requester_principal_name}"
        return DelegationToken(
            made.token_id,
            owner_shown,
            requester if made.token_requester_principal_type else owner_shown,
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
            bytes(made.hmac),
            tuple(f"{kind}:{name}" for kind, name in wanted),
        )

    async def renew(
        self,
        hmac: bytes,
        *,
        period_ms: Milliseconds | None = None,
        timeout_ms: Duration | None = None,
    ) -> int:
        """Prolong a token by a period from now on; return until when it is good.

        Raises:
            DelegationTokenNotFoundError, DelegationTokenExpiredError: there is none, or no longer.
            DelegationTokenOwnerMismatchError: the user is neither its owner nor a renewer.
        """
        request = RenewDelegationTokenRequest(
            hmac=hmac, renew_period_ms=_period("period_ms", period_ms)
        )
        calls, deadline = self._begin(timeout_ms)
        answer: RenewDelegationTokenResponse = await calls.ask_any(request, deadline, _code_of)
        return answer.expiry_timestamp_ms

    async def expire(
        self,
        hmac: bytes,
        *,
        period_ms: Milliseconds | None = None,
        timeout_ms: Duration | None = None,
    ) -> int:
        """Let a token end after a period from now on, or at once (None); return when it ends.

        Raises:
            DelegationTokenNotFoundError, DelegationTokenOwnerMismatchError: as `renew`.
        """
        request = ExpireDelegationTokenRequest(
            hmac=hmac, expiry_time_period_ms=_period("period_ms", period_ms)
        )
        calls, deadline = self._begin(timeout_ms)
        answer: ExpireDelegationTokenResponse = await calls.ask_any(request, deadline, _code_of)
        return answer.expiry_timestamp_ms

    async def describe(
        self, owners: Texts | None = None, *, timeout_ms: Duration | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of some owners, or all, that the user may see."""
        wanted: Sequence[tuple[str, str]] | None = None
        if owners is not None:
            wanted = [_principal("an owner", owner) for owner in several("owners", owners, str)]
        request = DescribeDelegationTokenRequest(
            owners=None
            if wanted is None
            else [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in wanted
            ]
        )
        calls, deadline = self._begin(timeout_ms)
        answer: DescribeDelegationTokenResponse = await calls.ask_any(request, deadline, _code_of)
        return [_token(each) for each in answer.tokens]


def _code_of(answer: CreateDelegationTokenResponse) -> tuple[ErrorCode, None]:
    return answer.error_code, None


def _principal(what: str, given: str) -> tuple[str, str]:
    kind, colon, name = text(what, given).partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{what} must be TYPE:NAME such as User:alice, not {given!r}")
    return kind, name


def _period(name: str, given: Milliseconds | None) -> int:
    return _BROKER_DEFAULT if given is None else whole_milliseconds(name, given)


def _token(reported: DescribedDelegationToken) -> DelegationToken:
    owner = f"{reported.principal_type}:{reported.principal_name}"
    requester = (
        f"{reported.token_requester_principal_type}:{reported.token_requester_principal_name}"
    )
    return DelegationToken(
        reported.token_id,
        owner,
        requester if reported.token_requester_principal_type else owner,
        reported.issue_timestamp,
        reported.expiry_timestamp,
        reported.max_timestamp,
        bytes(reported.hmac),
        tuple(f"{each.principal_type}:{each.principal_name}" for each in reported.renewers),
    )
