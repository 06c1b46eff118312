"""Kafka's `ssl.*` settings: what they mean, and which do not go together."""

from __future__ import annotations

import pytest

from kraftrio.base.secret import Secret
from kraftrio.net.tls.settings import (
    ClientAuth,
    StoreSettings,
    TlsSettings,
    TlsSettingsError,
)


def read(**settings: str) -> TlsSettings:
    """Settings by their names without `ssl.`, with `_` for a dot."""
    return TlsSettings.from_properties(
        {f"ssl.{name.replace('_', '.')}": text for name, text in settings.items()}
    )


def test_defaults_are_kafkas() -> None:
    assert TlsSettings.from_properties({"listeners": "SSL://:9093"}) == TlsSettings(
        None, None, ("TLSv1.2", "TLSv1.3"), (), True, ClientAuth.NONE
    )


def test_everything_set() -> None:
    settings = read(
        keystore_location="/k.jks",
        keystore_password="kp",
        key_password="keyp",
        truststore_location="/t.p12",
        truststore_type="pkcs12",
        truststore_password="tp",
        enabled_protocols="TLSv1.3",
        cipher_suites="A, B",
        endpoint_identification_algorithm="",
        client_auth="required",
    )
    assert settings == TlsSettings(
        StoreSettings("keystore", "JKS", "/k.jks", Secret("kp"), key_password=Secret("keyp")),
        StoreSettings("truststore", "PKCS12", "/t.p12", Secret("tp")),
        ("TLSv1.3",),
        ("A", "B"),
        False,
        ClientAuth.REQUIRED,
    )
    assert not any(secret in repr(settings) for secret in ("kp'", "keyp", "tp'"))


def test_pem_stands_in_the_settings_themselves() -> None:
    settings = read(
        keystore_type="PEM",
        keystore_key="KEY",
        keystore_certificate_chain="CHAIN",
        truststore_type="PEM",
        truststore_certificates="CA",
    )
    assert settings.keystore == StoreSettings(
        "keystore", "PEM", certificates="CHAIN", key=Secret("KEY")
    )
    assert settings.truststore == StoreSettings("truststore", "PEM", certificates="CA")
    assert "KEY" not in repr(settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"keystore_location": "/k"}, "ssl.keystore.password is not"),
        ({"keystore_password": "p"}, "ssl.keystore.location is not"),
        ({"keystore_key": "k"}, "only with ssl.keystore.type=PEM, but it is JKS"),
        ({"keystore_type": "PEM", "keystore_key": "k"}, "ssl.keystore.certificate.chain is not"),
        ({"keystore_type": "PEM", "keystore_certificate_chain": "c"}, "ssl.keystore.key is not"),
        (
            {
                "keystore_type": "PEM",
                "keystore_key": "k",
                "keystore_certificate_chain": "c",
                "keystore_location": "/k",
            },
            "both set: choose one",
        ),
        (
            {"keystore_type": "PEM", "keystore_location": "/k", "keystore_password": "p"},
            "only ssl.key.password can",
        ),
        ({"keystore_type": "BKS"}, "ssl.keystore.type is BKS: it must be one of JKS, PKCS12, PEM"),
        ({"truststore_password": "p"}, "ssl.truststore.location is not"),
        ({"truststore_certificates": "c"}, "only with ssl.truststore.type=PEM, but it is JKS"),
        (
            {
                "truststore_type": "PEM",
                "truststore_certificates": "c",
                "truststore_location": "/t",
            },
            "both set: choose one",
        ),
        (
            {"truststore_type": "PEM", "truststore_location": "/t", "truststore_password": "p"},
            "cannot be set with ssl.truststore.type=PEM",
        ),
        ({"enabled_protocols": "TLSv1.1"}, "it may have TLSv1.2 and TLSv1.3 only"),
        ({"client_auth": "maybe"}, "it must be one of required, requested, none"),
        ({"endpoint_identification_algorithm": "LDAPS"}, "it must be https, or empty for none"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(TlsSettingsError, match=sentence.replace("(", r"\(")):
        read(**settings)
