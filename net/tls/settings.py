"""Kafka's `ssl.*` settings as one value, of a listener or of a client.

Owns: `TlsSettings`, and which of the settings may stand together (as in Kafka's
DefaultSslEngineFactory). Passwords and private keys are `Secret`s. Pure: the files that are named
are read by `key_stores`.

Called by: the wiring of brokers, with the settings of one listener; the clients' settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftrio.base.secret import Secret

PEM: Final = "PEM"
STORE_TYPES: Final = ("JKS", "PKCS12", PEM)
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")


class TlsSettingsError(ValueError):
    """Settings that cannot be used; the text is one sentence for the person who wrote them."""


class ClientAuth(Enum):
    """Whether clients show a certificate (`ssl.client.auth`)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a key store or a trust store is, and how it is read.

    Attributes:
        role: "keystore" or "truststore", as in the settings' names.
        certificates: PEM text in place of a file: a certificate chain, or what is trusted.
        key: PEM text of the private key that goes with a chain.
        key_password: of the private key in the store, where it is another than the store's.
    """

    role: str
    type: str
    location: str | None = None
    password: Secret | None = None
    certificates: str | None = None
    key: Secret | None = None
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """See the module.

    Attributes:
        keystore: what this side presents; None: nothing.
        truststore: whom it trusts; None: whom the system does.
        protocols: those of `PROTOCOLS` that may be used.
        cipher_suites: by Java's names or OpenSSL's; empty: the defaults.
        checks_host: whether a server's certificate has to name the host that was dialled.
        client_auth: whether a server wants its clients' certificates.
    """

    keystore: StoreSettings | None = None
    truststore: StoreSettings | None = None
    protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    checks_host: bool = True
    client_auth: ClientAuth = ClientAuth.NONE

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TlsSettings:
        """Read them by Kafka's names; other names are left alone.

        Raises:
            TlsSettingsError: they do not fit together, or one is not known.
        """
        algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip()
        if algorithm.lower() not in ("", "https"):
            raise TlsSettingsError(
                f"ssl.endpoint.identification.algorithm is {algorithm}: it must be https, or empty"
                " for none"
            )
        return cls(
            keystore=_keystore(properties),
            truststore=_truststore(properties),
            protocols=_protocols(properties),
            cipher_suites=tuple(_list(properties.get("ssl.cipher.suites", ""))),
            checks_host=bool(algorithm),
            client_auth=_client_auth(properties.get("ssl.client.auth", "none").strip()),
        )


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _client_auth(text: str) -> ClientAuth:
    for choice in ClientAuth:
        if choice.value == text:
            return choice
    raise TlsSettingsError(
        f"ssl.client.auth is {text}: it must be one of required, requested, none"
    )


def _protocols(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Those that are enabled; `ssl.protocol` alone changes nothing, as in Kafka."""
    name = "ssl.enabled.protocols"
    chosen = _list(properties.get(name, "")) or list(PROTOCOLS)
    for one in chosen:
        if one not in PROTOCOLS:
            raise TlsSettingsError(f"{name} has {one}: it may have {' and '.join(PROTOCOLS)} only")
    return tuple(one for one in PROTOCOLS if one in chosen)


def _secret(properties: Mapping[str, str], name: str) -> Secret | None:
    text = properties.get(name)
    return None if text is None else Secret(text)


def _store_type(properties: Mapping[str, str], name: str) -> str:
    text = properties.get(name, "JKS").strip()
    if text.upper() not in STORE_TYPES:
        raise TlsSettingsError(f"{name} is {text}: it must be one of {', '.join(STORE_TYPES)}")
    return text.upper()


def _keystore(properties: Mapping[str, str]) -> StoreSettings | None:
    store_type = _store_type(properties, "ssl.keystore.type")
    location = properties.get("ssl.keystore.location") or None
    password = _secret(properties, "ssl.keystore.password")
    key = _secret(properties, "ssl.keystore.key")
    chain = properties.get("ssl.keystore.certificate.chain")
    if key is not None or chain is not None:
        if store_type != PEM:
            raise TlsSettingsError(
                f"ssl.keystore.key and ssl.keystore.certificate.chain can be set only with"
                f" ssl.keystore.type=PEM, but it is {store_type}"
            )
        if key is None or chain is None:
            given, missing = "certificate.chain", "key"
            if chain is None:
                given, missing = missing, given
            raise TlsSettingsError(
                f"ssl.keystore.{given} is set, but ssl.keystore.{missing} is not"
            )
        if location is not None:
            raise TlsSettingsError(
                "ssl.keystore.location and ssl.keystore.key are both set: choose one"
            )
    elif location is None:
        if password is not None:
            raise TlsSettingsError("ssl.keystore.password is set, but ssl.keystore.location is not")
        return None
    if store_type == PEM and password is not None:
        raise TlsSettingsError(
            "ssl.keystore.password cannot be set with ssl.keystore.type=PEM: only"
            " ssl.key.password can"
        )
    if store_type != PEM and password is None:
        raise TlsSettingsError("ssl.keystore.location is set, but ssl.keystore.password is not")
    key_password = _secret(properties, "ssl.key.password")
    return StoreSettings("keystore", store_type, location, password, chain, key, key_password)


def _truststore(properties: Mapping[str, str]) -> StoreSettings | None:
    store_type = _store_type(properties, "ssl.truststore.type")
    location = properties.get("ssl.truststore.location") or None
    password = _secret(properties, "ssl.truststore.password")
    certificates = properties.get("ssl.truststore.certificates")
    if certificates is not None:
        if store_type != PEM:
            raise TlsSettingsError(
                f"ssl.truststore.certificates can be set only with ssl.truststore.type=PEM, but it"
                f" is {store_type}"
            )
        if location is not None:
            raise TlsSettingsError(
                "ssl.truststore.location and ssl.truststore.certificates are both set: choose one"
            )
    elif location is None:
        if password is not None:
            raise TlsSettingsError(
                "ssl.truststore.password is set, but ssl.truststore.location is not"
            )
        return None
    if store_type == PEM and password is not None:
        raise TlsSettingsError("ssl.truststore.password cannot be set with ssl.truststore.type=PEM")
    return StoreSettings("truststore", store_type, location, password, certificates)
