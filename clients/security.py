"""How clients get in: `security_protocol`, `ssl_*` and `sasl_*`, by the Java clients' names.

Owns: `SecurityConfig`, its TypedDict `SecuritySettings`, and the network that they make. Rules:
1. What is wrong with a setting is a `ConfigError` of one sentence: with its text when the client is
   made, with the files it names when the client is entered.
2. Passwords and keys are in no `repr` and in no error.
3. Without security nothing stands between a client and its sockets.

Called by: `config`, of which the settings are a part, and `cluster`. Kafka documentation,
"Producer Configs"; KIP-651 (PEM).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, TypedDict, cast

from kraftrio.base.clock import Clock
from kraftrio.base.threads import run_in_worker_thread
from kraftrio.clients.arguments.values import text
from kraftrio.clients.errors import ConfigError
from kraftrio.net.sasl.credentials import (
    CLIENT_MECHANISMS,
    Credentials,
    SaslSettingsError,
    client_credentials,
)
from kraftrio.net.sasl.login import SaslLogin
from kraftrio.net.secured_network import Login, SecuredNetwork, TlsClient
from kraftrio.net.security_protocol import SecurityProtocol
from kraftrio.net.tls.settings import TlsSettings, TlsSettingsError
from kraftrio.net.transport import Network

_LISTS: Final = ("ssl_enabled_protocols", "ssl_cipher_suites")
_JAVA_NAME: Final = re.compile(r"\b(?:ssl|sasl)(?:\.[a-z]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """The settings of every client that say how it gets in."""

    security_protocol: str = "PLAINTEXT"
    ssl_protocol: str | None = None
    ssl_enabled_protocols: str | Sequence[str] | None = None
    ssl_cipher_suites: str | Sequence[str] | None = None
    ssl_endpoint_identification_algorithm: str | None = None  # None: https
    ssl_keystore_type: str | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_password: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)
    ssl_keystore_certificate_chain: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_truststore_type: str | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_password: str | None = field(default=None, repr=False)
    ssl_truststore_certificates: str | None = None
    sasl_mechanism: str | None = None
    sasl_jaas_config: str | None = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)

    @property
    def protocol(self) -> SecurityProtocol:
        """`security_protocol`, read; in any case, as in Java."""
        return SecurityProtocol[self.security_protocol.upper()]

    def security_properties(self) -> dict[str, str]:
        """Return what is set of TLS and SASL, by Kafka's names."""
        return {
            name.replace("_", "."): value if isinstance(value, str) else ",".join(value)
            for name in SECURITY_NAMES
            if name != "security_protocol" and (value := getattr(self, name)) is not None
        }

    def check_security(self) -> None:
        """Check all values, but not the files that they name.

        Raises:
            ConfigError: one is wrong.
        """
        for name in SECURITY_NAMES:
            _check_text(name, getattr(self, name))
        if self.security_protocol.upper() not in SecurityProtocol.__members__:
            shown = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(
                f"security_protocol must be one of {shown}, not {self.security_protocol!r}"
            )
        if self.protocol.uses_tls:
            _tls_settings(self.security_properties())
        if self.protocol.uses_sasl:
            _credentials(self.security_properties())


class SecuritySettings(TypedDict, total=False):
    """The keyword arguments that every client takes for it; see `SecurityConfig`."""

    security_protocol: str
    ssl_protocol: str | None
    ssl_enabled_protocols: str | Sequence[str] | None
    ssl_cipher_suites: str | Sequence[str] | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_keystore_type: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_key_password: str | None
    ssl_truststore_type: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    sasl_mechanism: str | None
    sasl_jaas_config: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None


SECURITY_NAMES: Final = tuple(field.name for field in fields(SecurityConfig))
SECRET_NAMES: Final = frozenset(field.name for field in fields(SecurityConfig) if not field.repr)


def security_settings(properties: Mapping[str, str]) -> SecuritySettings:
    """Return those of Kafka's properties that say how a client gets in, as keyword arguments."""
    found = {name.replace(".", "_"): value for name, value in properties.items()}
    known = {name: found[name] for name in SECURITY_NAMES if name in found}
    return cast(SecuritySettings, known)


def secured(config: SecurityConfig, network: Network, client_id: str) -> Network:
    """Return the network over which a client's connections are as it says.

    Raises:
        ConfigError: a file cannot be read, or does not hold what it should.
    """
    protocol = config.protocol
    if protocol is SecurityProtocol.PLAINTEXT:
        return network
    properties = config.security_properties()
    tls = _tls_client(properties) if protocol.uses_tls else None
    login = _login(properties, client_id) if protocol.uses_sasl else None
    return SecuredNetwork(network, tls, login)


def _tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    try:
        return TlsSettings.from_properties(properties)
    except TlsSettingsError as error:
        raise ConfigError(_in_python(str(error))) from None


def _tls_client(properties: Mapping[str, str]) -> TlsClient:
    # Here, since only TLS needs its libraries.
    from kraftrio.net.tls.client import TlsConnector
    from kraftrio.net.tls.contexts import TlsMaterial

    try:
        context = TlsMaterial.load(_tls_settings(properties)).client_context()
    except TlsSettingsError as error:
        raise ConfigError(_in_python(str(error))) from error
    return TlsConnector(lambda: context)


def _credentials(properties: Mapping[str, str]) -> Credentials:
    if "sasl.mechanism" not in properties:
        raise ConfigError(
            f"sasl_mechanism must be one of {', '.join(CLIENT_MECHANISMS)}, but is not set"
        )
    try:
        return client_credentials(properties, random.SystemRandom(), Clock().wall_ms)
    except SaslSettingsError as error:
        raise ConfigError(_in_python(str(error))) from None


def _login(properties: Mapping[str, str], client_id: str) -> Login:
    return SaslLogin(
        _credentials(properties), run_in_worker_thread, random.SystemRandom(), client_id
    )


def _check_text(name: str, value: object) -> None:
    if value is None and name != "security_protocol":
        return
    items = list(value) if name in _LISTS and isinstance(value, list | tuple) else [value]
    for item in items:
        if name not in SECRET_NAMES:
            _require_text(name, item)
        elif not isinstance(item, str):
            raise ConfigError(f"{name} must be a string, not {type(item).__name__}")


def _require_text(name: str, value: object) -> None:
    try:
        text(name, value, most_bytes=None)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _in_python(sentence: str) -> str:
    """Name settings as programs in Python do."""
    return _JAVA_NAME.sub(lambda found: found[0].replace(".", "_"), sentence)
