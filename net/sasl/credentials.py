"""What a client logs in with: a mechanism, and what its JAAS text says.

Owns: `Credentials`, which makes an exchange for each login. Rules (Kafka's)
- PLAIN and SCRAM take the options `username` and `password` of their login modules, SCRAM besides
  `tokenauth`, with which these are the id and the HMAC of a delegation token (KIP-48).
- OAUTHBEARER takes a token from where the settings say (`bearer_tokens`).

Made by: clients of their settings, brokers of those of the listener that they dial.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kraftrio.base.secret import Secret
from kraftrio.base.threads import RunInThread
from kraftrio.net.sasl.bearer_tokens import TokenSource, token_source
from kraftrio.net.sasl.client_exchanges import (
    BearerClient,
    ClientExchange,
    PlainClient,
    SaltedPassword,
    ScramClient,
)
from kraftrio.net.sasl.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasEntry,
    JaasError,
    parse_jaas,
)
from kraftrio.wire.sasl.oauthbearer import OAUTHBEARER
from kraftrio.wire.sasl.plain import PLAIN
from kraftrio.wire.sasl.scram import TOKEN_EXTENSION
from kraftrio.wire.sasl.scram_keys import ScramMechanism

CLIENT_MECHANISMS: Final = (
    PLAIN,
    *(mechanism.mechanism_name for mechanism in ScramMechanism),
    OAUTHBEARER,
)
_PASSWORD_MODULES = (PLAIN_MODULE, SCRAM_MODULE)
_NONCE_BYTES = 24


class SaslSettingsError(ValueError):
    """A setting of the login is wrong; the message is one plain sentence without any secret."""


class Credentials(Protocol):
    """See the module."""

    @property
    def mechanism(self) -> str: ...

    async def new_exchange(self, run_in_thread: RunInThread) -> ClientExchange:
        """Begin a login.

        Args:
            run_in_thread: for what has to be asked of others first.

        Raises:
            LoginRefused: there is nothing to log in with.
        """


class _Exchanges:
    """Credentials whose exchanges need nothing from outside."""

    def __init__(self, mechanism: str, make: Callable[[], ClientExchange]) -> None:
        self.mechanism = mechanism
        self._make = make

    async def new_exchange(self, run_in_thread: RunInThread) -> ClientExchange:
        return self._make()


class _BearerCredentials:
    def __init__(self, tokens: TokenSource, extensions: Mapping[str, str]) -> None:
        self.mechanism = OAUTHBEARER
        self._tokens = tokens
        self._extensions = extensions

    async def new_exchange(self, run_in_thread: RunInThread) -> ClientExchange:
        return BearerClient(await self._tokens.token(run_in_thread), self._extensions)


def nonces(rng: random.Random) -> Callable[[], str]:
    """Return what makes the nonces of SCRAM: unguessable texts."""
    return lambda: base64.b64encode(rng.randbytes(_NONCE_BYTES)).decode()


def client_credentials(
    settings: Mapping[str, str], rng: random.Random, wall_ms: Callable[[], int]
) -> Credentials:
    """Read a client's settings: `sasl.mechanism`, `sasl.jaas.config` and those that go with them.

    Raises:
        SaslSettingsError: one of them is wrong.
    """
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip()
    check_client_mechanism(mechanism, "sasl.mechanism")
    text = settings.get("sasl.jaas.config")
    if text is None:
        raise SaslSettingsError(
            f"sasl.jaas.config is not set, and says with what to log in by {mechanism}"
        )
    try:
        entry = parse_jaas(text)
    except JaasError as error:
        raise SaslSettingsError(f"sasl.jaas.config: {error}") from error
    return credentials_of(mechanism, entry, settings, rng, wall_ms)


def check_client_mechanism(mechanism: str, setting: str) -> None:
    """Raise SaslSettingsError unless a client can log in by this mechanism."""
    if mechanism not in CLIENT_MECHANISMS:
        reason = "not supported" if mechanism == "GSSAPI" else "unknown"
        raise SaslSettingsError(
            f"{setting} is {mechanism!r}, which is {reason}: the mechanisms are"
            f" {', '.join(CLIENT_MECHANISMS)}"
        )


def credentials_of(
    mechanism: str,
    entry: JaasEntry,
    settings: Mapping[str, str],
    rng: random.Random,
    wall_ms: Callable[[], int],
) -> Credentials:
    """Make credentials of a JAAS entry.

    Raises:
        SaslSettingsError: the entry lacks something, or is one of another mechanism.
    """
    allowed = (OAUTHBEARER_MODULE,) if mechanism == OAUTHBEARER else _PASSWORD_MODULES
    if entry.module not in allowed:
        raise SaslSettingsError(
            f"the login module of {mechanism} is {allowed[-1]}, not {entry.module}"
            if mechanism != PLAIN
            else f"the login module of PLAIN is {PLAIN_MODULE}, not {entry.module}"
        )
    if mechanism == OAUTHBEARER:
        try:
            tokens, extensions = token_source(entry.options, settings, wall_ms)
        except ValueError as error:
            raise SaslSettingsError(str(error)) from error
        return _BearerCredentials(tokens, extensions)
    user, password = entry.options.get("username"), entry.options.get("password")
    if not user or not password:
        raise SaslSettingsError(
            f"the JAAS text has no username and password, with which to log in by {mechanism}"
        )
    scram = ScramMechanism.of_name(mechanism)
    if scram is None:
        secret = Secret(password)
        return _Exchanges(mechanism, lambda: PlainClient(user, secret))
    salted, new_nonce = SaltedPassword(scram, Secret(password)), nonces(rng)
    is_token = entry.options.get("tokenauth", "").lower() == "true"
    extensions = {TOKEN_EXTENSION: "true"} if is_token else {}
    return _Exchanges(mechanism, lambda: ScramClient(user, salted, new_nonce, extensions))
