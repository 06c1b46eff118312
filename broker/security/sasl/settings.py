"""What the logins of one listener need: its mechanisms, made from its settings.

Owns: `ListenerSasl`, a value. Rules (Kafka's)
1. The settings are those of the listener (`listener_settings.settings_of`); those of a mechanism
   begin with its name: `plain.sasl.jaas.config`, `oauthbearer.connections.max.reauth.ms`.
2. PLAIN needs a JAAS text, whose options `user_NAME` are its users. SCRAM needs none: its users are
   in the metadata. OAUTHBEARER takes signed tokens where the settings say where the provider's keys
   are, or name Kafka's class for them; else unsecured ones, which are for tests.
3. GSSAPI is not served: Kerberos is not supported.

Pure. Made by `node` when it starts; a mistake is one plain sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kraftrio.broker.security.sasl.exchange import ServerExchange
from kraftrio.broker.security.sasl.oauthbearer import BearerExchange, TokenValidator
from kraftrio.broker.security.sasl.plain import PlainExchange, plain_users
from kraftrio.broker.security.sasl.scram import ScramCredentials, ScramExchange
from kraftrio.broker.security.sasl.unsecured_tokens import UnsecuredTokens
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
from kraftrio.wire.sasl.scram_keys import ScramMechanism

if TYPE_CHECKING:  # it takes 30 ms to load, which only those wait who need it
    from kraftrio.broker.security.sasl.signed_tokens import ExpectedClaims, JsonWebKeys

GSSAPI: Final = "GSSAPI"
SERVED_MECHANISMS: Final = (
    PLAIN,
    *(mechanism.mechanism_name for mechanism in ScramMechanism),
    OAUTHBEARER,
)

_JAAS = "sasl.jaas.config"
_HANDLER = "sasl.server.callback.handler.class"
_JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_MODULES = {PLAIN: PLAIN_MODULE, OAUTHBEARER: OAUTHBEARER_MODULE}
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_SIGNED_HANDLERS = frozenset(
    {
        _PACKAGE + "OAuthBearerValidatorCallbackHandler",
        _PACKAGE + "secured.OAuthBearerValidatorCallbackHandler",
    }
)
_UNSECURED_HANDLER = _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


class SaslSettingError(ValueError):
    """A setting of logins is wrong; the message is one plain sentence."""


class KeySource:
    """Where the keys of a provider are, and the set that they are put into."""

    def __init__(self, url: str, keys: JsonWebKeys, settings: Mapping[str, str]) -> None:
        self.url = url
        self.keys = keys
        self.refresh_ms = _number(settings, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000)
        self.retry_ms = _number(settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100)
        self.max_retry_ms = _number(
            settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000
        )


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One mechanism of a listener.

    Attributes:
        max_reauth_ms: how long a login counts (KIP-368); 0: until the connection ends.
        keys: those that the edge has to read; None: there are none.
        is_for_tests: clients are whom they say they are.
    """

    new_exchange: Callable[[], ServerExchange]
    max_reauth_ms: int = 0
    keys: KeySource | None = None
    is_for_tests: bool = False


@dataclass(frozen=True, slots=True)
class ListenerSasl:
    """See the module.

    Attributes:
        mechanisms: by name, in the order of `sasl.enabled.mechanisms`.
        max_receive_bytes: how large a message of a client may be that is not logged in.
        failure_delay_ms: how long a refused client waits for its answer.
    """

    mechanisms: Mapping[str, Mechanism]
    max_receive_bytes: int = 524_288
    failure_delay_ms: int = 100

    @property
    def names(self) -> list[str]:
        """The names of the mechanisms."""
        return list(self.mechanisms)


@dataclass(frozen=True, slots=True)
class LoginPorts:
    """What logins need from outside: users, and random texts."""

    credentials: ScramCredentials
    new_nonce: Callable[[], str] = field(repr=False)


def listener_sasl(listener: str, settings: Mapping[str, str], ports: LoginPorts) -> ListenerSasl:
    """Read the settings of a listener.

    Raises:
        SaslSettingError: one of them is wrong.
    """
    names = _list(settings.get("sasl.enabled.mechanisms", GSSAPI))
    if not names:
        raise SaslSettingError(f"listener {listener} has no sasl.enabled.mechanisms")
    mechanisms = {}
    for name in names:
        check_mechanism(name, "sasl.enabled.mechanisms", listener)
        mechanisms[name] = _mechanism(name, listener, settings, ports)
    return ListenerSasl(
        mechanisms,
        max_receive_bytes=_number(settings, "sasl.server.max.receive.size", 524_288),
        failure_delay_ms=_number(settings, "connection.failed.authentication.delay.ms", 100),
    )


def check_mechanism(name: str, setting: str, listener: str) -> None:
    """Raise SaslSettingError unless a mechanism is served."""
    if name == GSSAPI:
        raise SaslSettingError(
            f"{setting} of listener {listener} is GSSAPI, which is not supported: set it to"
            f" {', '.join(SERVED_MECHANISMS)}"
        )
    if name not in SERVED_MECHANISMS:
        raise SaslSettingError(
            f"{setting} of listener {listener} names {name!r}: the mechanisms are"
            f" {', '.join(SERVED_MECHANISMS)}"
        )


def jaas_of(name: str, listener: str, settings: Mapping[str, str]) -> JaasEntry | None:
    """Return what the JAAS text of a mechanism says; None: there is none.

    Raises:
        SaslSettingError: it is malformed.
    """
    setting = f"{name.lower()}.{_JAAS}"
    text = settings.get(setting)
    if text is None:
        return None
    where = f"listener.name.{listener.lower()}.{setting}"
    try:
        entry = parse_jaas(text)
    except JaasError as error:
        raise SaslSettingError(f"{where}: {error}") from error
    wanted = _MODULES.get(name, SCRAM_MODULE)
    if entry.module != wanted:
        raise SaslSettingError(
            f"{where} names the login module {entry.module}: that of {name} is {wanted}"
        )
    return entry


def _mechanism(
    name: str, listener: str, settings: Mapping[str, str], ports: LoginPorts
) -> Mechanism:
    prefix = f"{name.lower()}."
    max_reauth_ms = _number(
        settings,
        prefix + "connections.max.reauth.ms",
        _number(settings, "connections.max.reauth.ms", 0),
    )
    entry = jaas_of(name, listener, settings)
    handler = settings.get(prefix + _HANDLER, settings.get(_HANDLER, "")).strip()
    scram = ScramMechanism.of_name(name)
    if name != OAUTHBEARER and handler:
        raise SaslSettingError(
            f"{prefix}{_HANDLER} of listener {listener} is {handler}: Java classes are not"
            " supported"
        )
    if scram is not None:
        return Mechanism(
            lambda: ScramExchange(scram, ports.credentials, ports.new_nonce), max_reauth_ms
        )
    if name == PLAIN:
        if entry is None:
            raise SaslSettingError(
                f"listener {listener} needs listener.name.{listener.lower()}.{prefix}{_JAAS} with"
                " the users of PLAIN"
            )
        users = plain_users(entry.options)
        return Mechanism(lambda: PlainExchange(users), max_reauth_ms)
    options = {} if entry is None else entry.options
    return _bearer_mechanism(listener, settings, handler, options, max_reauth_ms)


def _bearer_mechanism(
    listener: str,
    settings: Mapping[str, str],
    handler: str,
    options: Mapping[str, str],
    max_reauth_ms: int,
) -> Mechanism:
    if handler not in ("", _UNSECURED_HANDLER, *_SIGNED_HANDLERS):
        raise SaslSettingError(
            f"oauthbearer.{_HANDLER} of listener {listener} is {handler}: other Java classes than"
            " Kafka's are not supported"
        )
    url = settings.get(_JWKS_URL, "").strip()
    validator: TokenValidator
    if handler in _SIGNED_HANDLERS or (url and handler != _UNSECURED_HANDLER):
        if not url:
            raise SaslSettingError(f"listener {listener} needs {_JWKS_URL} to check signed tokens")
        if not url.startswith(("file:", "http://", "https://")):
            raise SaslSettingError(
                f"{_JWKS_URL} of listener {listener} is {url!r}: a URL of a file, http or https is"
                " wanted"
            )
        from kraftrio.broker.security.sasl.signed_tokens import JsonWebKeys, SignedTokens

        source = KeySource(url, JsonWebKeys(), settings)
        validator = SignedTokens(source.keys, _expected_claims(settings))
        return Mechanism(lambda: BearerExchange(validator), max_reauth_ms, source)
    try:
        validator = UnsecuredTokens(options)
    except ValueError as error:
        raise SaslSettingError(f"the JAAS text of listener {listener}: {error}") from error
    return Mechanism(lambda: BearerExchange(validator), max_reauth_ms, is_for_tests=True)


def _expected_claims(settings: Mapping[str, str]) -> ExpectedClaims:
    from kraftrio.broker.security.sasl.signed_tokens import ExpectedClaims

    return ExpectedClaims(
        audiences=tuple(_list(settings.get("sasl.oauthbearer.expected.audience", ""))),
        issuer=settings.get("sasl.oauthbearer.expected.issuer") or None,
        clock_skew_s=_number(settings, "sasl.oauthbearer.clock.skew.seconds", 30),
        subject_claim=settings.get("sasl.oauthbearer.sub.claim.name", "").strip() or "sub",
        scope_claim=settings.get("sasl.oauthbearer.scope.claim.name", "").strip() or "scope",
    )


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name)
    if text is None:
        return default
    try:
        return int(text.strip())
    except ValueError as error:
        raise SaslSettingError(f"{name} is {text.strip()!r}, not a whole number") from error
