"""The admin client's part for users who log in by SCRAM: whose passwords brokers know.

Owns `ScramUserAdmin`, which programs reach as `Admin.scram_users`, and the values it takes. A
password never leaves the program: brokers get it salted and hashed, as with Java's client.

Called by: `admin`. KIP-554.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftrio.clients.admin.calls import Begin, collect, finish
from kraftrio.clients.admin.types import Results
from kraftrio.clients.arguments.several import Texts, several, texts
from kraftrio.clients.arguments.times import Duration
from kraftrio.clients.arguments.values import text, whole_number
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from kraftrio.wire.sasl.scram_keys import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    salted_password,
)

__all__ = [
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramMechanism",
    "ScramPassword",
    "ScramUserAdmin",
]

_SALT_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """What may be known of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramPassword:
    """Gives a user a password, in place of the one before.

    Attributes:
        iterations: how much work it is to try passwords out, and to log in.
        salt: None: random bytes.
    """

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = MIN_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """Takes a user's password for a mechanism away."""

    user: str
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512


class ScramUserAdmin:
    """Administers users.

    Args:
        begin: begins a call, which may take some milliseconds at most.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    async def describe(
        self,
        users: Texts | None = None,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        """Return for which mechanisms users have passwords; None: all users who have one.

        Raises:
            ResourceNotFoundError, ...: for a user, if `raise_errors`.
            ClusterAuthorizationError: the caller may not describe the cluster.
        """
        wanted = None
        if users is not None:
            wanted = [UserName(name=user) for user in texts("users", users, "a user")]
        calls, deadline = self._begin(timeout_ms)
        response: DescribeUserScramCredentialsResponse = await calls.ask_any(
            DescribeUserScramCredentialsRequest(users=wanted),
            deadline,
            lambda answer: (answer.error_code, answer.error_message),
        )
        results = collect(
            (
                reported.user,
                reported.error_code,
                reported.error_message,
                tuple(
                    ScramCredentialInfo(ScramMechanism(each.mechanism), each.iterations)
                    for each in reported.credential_infos
                ),
            )
            for reported in response.results
        )
        return finish(results, raise_errors)

    async def alter(
        self,
        changes: ScramPassword | ScramDeletion | Iterable[ScramPassword | ScramDeletion],
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Give users passwords, or take them away: one change of a user at a time.

        Raises:
            ResourceNotFoundError: there is no such password to take away;
            DuplicateResourceError: two changes are of one user;
            UnacceptableCredentialError, ...: for a user, if `raise_errors`.
        """
        request = _request(several("changes", changes, (ScramPassword, ScramDeletion)))
        calls, deadline = self._begin(timeout_ms)
        response: AlterUserScramCredentialsResponse = await calls.ask_any(request, deadline)
        results = collect(
            (reported.user, reported.error_code, reported.error_message, None)
            for reported in response.results
        )
        return finish(results, raise_errors)


def _request(
    changes: Sequence[ScramPassword | ScramDeletion],
) -> AlterUserScramCredentialsRequest:
    request = AlterUserScramCredentialsRequest()
    for change in changes:
        if not isinstance(change, ScramPassword | ScramDeletion):
            raise TypeError(f"a change must be a ScramPassword or a ScramDeletion, not {change!r}")
        text("a user", change.user)
        mechanism = ScramMechanism(change.mechanism)
        if isinstance(change, ScramDeletion):
            deletion = ScramCredentialDeletion(name=change.user, mechanism=mechanism)
            request.deletions.append(deletion)
        else:
            request.upsertions.append(_upsertion(change, mechanism))
    return request


def _upsertion(change: ScramPassword, mechanism: ScramMechanism) -> ScramCredentialUpsertion:
    if not isinstance(change.password, str):
        raise TypeError(f"a password must be a string, not {type(change.password).__name__}")
    if not change.password:
        raise ValueError("a password must not be empty")
    iterations = whole_number("iterations", change.iterations, MIN_ITERATIONS, MAX_ITERATIONS)
    salt = secrets.token_bytes(_SALT_BYTES) if change.salt is None else change.salt
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, change.password, salt, iterations),
    )
