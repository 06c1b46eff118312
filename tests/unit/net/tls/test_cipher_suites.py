"""Cipher suites by Java's names and OpenSSL's; every one that OpenSSL offers is known by both."""

from __future__ import annotations

import ssl

import pytest

from kraftrio.net.tls.cipher_suites import TLS_1_3_SUITES, openssl_cipher_list, openssl_name
from kraftrio.net.tls.settings import PROTOCOLS, TlsSettingsError

# As Java 17 names them.
NAMES = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert openssl_name(name) == openssl_name(NAMES[name]) == NAMES[name]
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(NAMES[name])


def test_versions_follow_the_suites() -> None:
    older, newer = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", list(TLS_1_3_SUITES)
    assert openssl_cipher_list(PROTOCOLS, []) == (PROTOCOLS, "")
    assert openssl_cipher_list(PROTOCOLS, [older]) == (("TLSv1.2",), NAMES[older])
    assert openssl_cipher_list(PROTOCOLS, newer) == (("TLSv1.3",), "")
    assert openssl_cipher_list(PROTOCOLS, [*newer, older]) == (PROTOCOLS, NAMES[older])
    assert openssl_cipher_list(["TLSv1.2"], [*newer[:1], older]) == (("TLSv1.2",), NAMES[older])


@pytest.mark.parametrize(
    ("protocols", "suites", "sentence"),
    [
        (PROTOCOLS, ["TLS_MADE_UP"], "TLS_MADE_UP, which is not a cipher suite that is known"),
        (PROTOCOLS, [TLS_1_3_SUITES[0]], "some of the suites of TLSv1.3 only"),
        (["TLSv1.2"], list(TLS_1_3_SUITES), "no suite for TLSv1.2"),
    ],
)
def test_what_cannot_be(protocols: list[str], suites: list[str], sentence: str) -> None:
    with pytest.raises(TlsSettingsError, match=sentence):
        openssl_cipher_list(protocols, suites)
