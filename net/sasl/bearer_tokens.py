"""Where the tokens of OAUTHBEARER come from: `TokenSource`.

Behaviour (Kafka's login callback handlers)
- With `sasl.oauthbearer.token.endpoint.url`: a file's text, or what the provider gives for a client
  id and a secret (RFC 6749, section 4.4). These are settings, or options of the login module.
- Else unsecured tokens of the login module's options `unsecuredLogin...`, which are for tests.

A token is used until most of its life is over, then the next one is asked for; what a provider
gives is kept meanwhile. Extensions (KIP-342) are options, too.

Called by: `credentials`.
"""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import trio

from kraftrio.base.secret import Secret
from kraftrio.base.threads import RunInThread
from kraftrio.net.http_fetch import FetchError, fetch
from kraftrio.net.security_errors import LoginRefused
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.jws import encode_unsecured, parse_jws
from kraftrio.wire.sasl.oauthbearer import check_extension

_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_UNSECURED = "unsecuredLogin"
_EXTENSION = "extension_"
_UNSECURED_EXTENSION = "unsecuredLoginExtension_"
_USED_PART = 0.8  # of a token's life
_TIMEOUT_S = 10.0
_DEFAULT_LIFETIME_S = 3600
_RESERVED_CLAIMS = frozenset({"iat", "exp"})


class TokenSource(Protocol):
    """Gives tokens."""

    async def token(self, run_in_thread: RunInThread) -> Secret:
        """Return a token that is valid now.

        Raises:
            LoginRefused: there is none.
        """


def token_source(
    options: Mapping[str, str], settings: Mapping[str, str], wall_ms: Callable[[], int]
) -> tuple[TokenSource, dict[str, str]]:
    """Return where tokens come from, and the extensions that go with them.

    Raises:
        ValueError: a setting or an option is wrong; the message is one plain sentence.
    """
    url = settings.get(_ENDPOINT, "").strip()
    prefix = _EXTENSION if url else _UNSECURED_EXTENSION
    extensions = {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }
    for name, value in extensions.items():
        check_extension(name, value)
    if not url:
        return _UnsecuredTokens(options, wall_ms), extensions
    if url.startswith("file:"):
        return _KeptTokens(lambda: fetch(url, timeout_s=_TIMEOUT_S).decode(), wall_ms), extensions
    return _KeptTokens(_endpoint(url, options, settings), wall_ms), extensions


class _UnsecuredTokens:
    """Makes unsigned tokens."""

    def __init__(self, options: Mapping[str, str], wall_ms: Callable[[], int]) -> None:
        self._claims = unsecured_claims(options)
        self._lifetime_s = _seconds(options)
        self._wall_ms = wall_ms
        principal_claim = options.get(f"{_UNSECURED}PrincipalClaimName", "").strip() or "sub"
        if not str(self._claims.get(principal_claim) or "").strip():
            raise ValueError(f"an unsecured token has no claim {principal_claim}")

    async def token(self, run_in_thread: RunInThread) -> Secret:
        now_s = self._wall_ms() / 1000
        times = {"exp": now_s + self._lifetime_s, "iat": now_s}
        return Secret(encode_unsecured({**times, **self._claims}))


class _KeptTokens:
    """Asks for a token, in a thread, whenever the last one is used up."""

    def __init__(self, ask: Callable[[], str], wall_ms: Callable[[], int]) -> None:
        self._ask = ask
        self._wall_ms = wall_ms
        self._lock = trio.Lock()
        self._token: Secret | None = None
        self._until_ms = 0.0

    async def token(self, run_in_thread: RunInThread) -> Secret:
        async with self._lock:
            if self._token is None or self._wall_ms() >= self._until_ms:
                await self._renew(run_in_thread)
            assert self._token is not None, "one was asked for"
            return self._token

    async def _renew(self, run_in_thread: RunInThread) -> None:
        found: list[str] = []
        now_ms = self._wall_ms()
        try:
            await run_in_thread(lambda: found.append(self._ask().strip()))
            expires_s = parse_jws(found[0]).number("exp")
        except (FetchError, UnicodeDecodeError, RemoteProtocolError) as error:
            raise LoginRefused(f"there is no token to log in with: {error}") from error
        life_ms = 0.0 if expires_s is None else max(expires_s * 1000 - now_ms, 0.0)
        self._token = Secret(found[0])
        self._until_ms = now_ms + life_ms * _USED_PART


def unsecured_claims(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the claims that options of the login module name.

    Raises:
        ValueError: one of them is malformed.
    """
    claims: dict[str, Any] = {}
    for option, value in options.items():
        for kind, read in (
            ("StringClaim_", str),
            ("NumberClaim_", _claimed_number),
            ("ListClaim_", _claimed_list),
        ):
            name = option.removeprefix(_UNSECURED + kind)
            if name in ("", option):
                continue
            if name in _RESERVED_CLAIMS:
                raise ValueError(f"the claim {name} of an unsecured token cannot be set")
            claims[name] = read(value)
    return claims


def _claimed_number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError("a number claim of an unsecured token is not a number") from error


def _claimed_list(text: str) -> list[str]:
    """The first character separates the entries."""
    return text[1:].split(text[0]) if len(text) > 1 else []


def _seconds(options: Mapping[str, str]) -> int:
    text = options.get(f"{_UNSECURED}LifetimeSeconds", str(_DEFAULT_LIFETIME_S)).strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{_UNSECURED}LifetimeSeconds is {text!r}, not a number of seconds")
    return int(text)


def _endpoint(
    url: str, options: Mapping[str, str], settings: Mapping[str, str]
) -> Callable[[], str]:
    """Return what asks a provider for a token."""
    client_id = settings.get(_CLIENT_ID) or options.get("clientId", "")
    secret = settings.get(_CLIENT_SECRET) or options.get("clientSecret", "")
    scope = settings.get("sasl.oauthbearer.scope") or options.get("scope", "")
    if not client_id or not secret:
        raise ValueError(
            f"{_ENDPOINT} needs {_CLIENT_ID} and {_CLIENT_SECRET}, or clientId and clientSecret in"
            " the JAAS text"
        )
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{_ENDPOINT} is {url!r}: a URL of a file, http or https is wanted")
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    identity = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    headers = {
        "Authorization": f"Basic {identity}",
        "Content-Type": "application/x-www-form-urlencoded",
    }

    def ask() -> str:
        body = urllib.parse.urlencode(form).encode()
        answer = fetch(url, timeout_s=_TIMEOUT_S, body=body, headers=headers)
        try:
            token = json.loads(answer)["access_token"]
        except (ValueError, KeyError, TypeError) as error:
            raise FetchError(f"{url} gives no access_token") from error
        return str(token)

    return ask
