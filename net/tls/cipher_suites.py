"""Cipher suites by their names in Java and in OpenSSL.

Java names a suite as the IANA does (`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`), OpenSSL in its own
way (`ECDHE-RSA-AES128-GCM-SHA256`), but for those of TLS 1.3. Pure.

Called by: `contexts`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kraftrio.net.tls.settings import TlsSettingsError

TLS_1_3_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)

_NAME = "ssl.cipher.suites"
_OF_JAVA = re.compile(
    r"TLS_(?:(ECDHE|DHE)_)?(ECDSA|RSA)_WITH_(AES_128|AES_256|CHACHA20)_(GCM|CBC|POLY1305)_"
    r"(SHA|SHA256|SHA384)\Z"
)
_OF_OPENSSL = re.compile(r"[A-Z0-9]+(?:-[A-Z0-9]+)+\Z")


def openssl_name(suite: str) -> str:
    """Return a suite of TLS 1.2 by OpenSSL's name.

    Raises:
        TlsSettingsError: it is not known.
    """
    match = _OF_JAVA.match(suite)
    if match is None:
        if _OF_OPENSSL.match(suite):
            return suite
        raise TlsSettingsError(f"{_NAME} has {suite}, which is not a cipher suite that is known")
    exchange, signature, cipher, mode, digest = match.groups()
    parts = [exchange, signature, cipher.replace("_", "")]
    if exchange is None and signature == "RSA":
        parts = [cipher.replace("_", "")]
    if mode == "POLY1305":
        return "-".join([*parts, mode])
    return "-".join([*parts, *(["GCM"] if mode == "GCM" else []), digest])


def openssl_cipher_list(
    protocols: Sequence[str], suites: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """Return the versions that remain with these suites, and OpenSSL's list for TLS 1.2.

    Args:
        protocols: those that are enabled, the older first.
        suites: those that are allowed; empty: the defaults of OpenSSL.

    Raises:
        TlsSettingsError: one is not known, or nothing is left.
    """
    if not suites:
        return tuple(protocols), ""
    newer = [one for one in suites if one in TLS_1_3_SUITES]
    older = [openssl_name(one) for one in suites if one not in TLS_1_3_SUITES]
    usable = {"TLSv1.2": bool(older), "TLSv1.3": bool(newer)}
    versions = tuple(one for one in protocols if usable[one])
    if not versions:
        raise TlsSettingsError(
            f"{_NAME} has no suite for {' or '.join(protocols)}, which ssl.enabled.protocols allows"
        )
    if "TLSv1.3" in versions and len(set(newer)) < len(TLS_1_3_SUITES):
        raise TlsSettingsError(
            f"{_NAME} has some of the suites of TLSv1.3 only: it must have"
            f" {', '.join(TLS_1_3_SUITES)}, or none of them"
        )
    return versions, ":".join(older) if "TLSv1.2" in versions else ""
