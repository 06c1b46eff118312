"""Makes the contexts of Python's `ssl` from Kafka's settings.

Owns: `TlsMaterial` (what the files held when they were read), and what becomes of it. Rules
1. TLS 1.2 and 1.3 only; no compression, no renegotiation. No session is resumed: a client whose
   certificate is no longer trusted has no older session to come back with.
2. A server trusts whom its trust store names; without one, whom the system trusts, as in Java.
3. Private keys go to OpenSSL through memory, since it reads them from files alone.

Called by: `identity` (which renews contexts), and tests.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kraftrio.net.tls.cipher_suites import openssl_cipher_list
from kraftrio.net.tls.key_stores import KeyEntry, load_key_store, load_trust_store
from kraftrio.net.tls.settings import ClientAuth, TlsSettings, TlsSettingsError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """Settings with the keys and certificates that they name.

    Attributes:
        trusted: None: whom the system trusts.
    """

    settings: TlsSettings
    own: KeyEntry | None
    trusted: tuple[x509.Certificate, ...] | None

    @classmethod
    def load(cls, settings: TlsSettings) -> TlsMaterial:
        """Read the key store and the trust store, in the calling thread.

        Raises:
            TlsSettingsError: one cannot be used.
        """
        keystore, truststore = settings.keystore, settings.truststore
        return cls(
            settings,
            None if keystore is None else load_key_store(keystore),
            None if truststore is None else load_trust_store(truststore),
        )

    def server_context(self) -> ssl.SSLContext:
        """Make the context of connections that clients open.

        Raises:
            TlsSettingsError: there is no key store, or OpenSSL does not take a setting.
        """
        if self.own is None:
            raise TlsSettingsError(
                "ssl.keystore.location is not set: a listener with TLS needs a certificate"
            )
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = _VERIFY[self.settings.client_auth]
        context.num_tickets = 0
        return context

    def client_context(self) -> ssl.SSLContext:
        """Make the context of connections that this side opens.

        Raises:
            TlsSettingsError: OpenSSL does not take a setting.
        """
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.settings.checks_host
        # A name in the subject counts where a certificate has no other, as in Java.
        context.hostname_checks_common_name = True
        return context

    def _context(self, purpose: int) -> ssl.SSLContext:
        settings = self.settings
        context = ssl.SSLContext(purpose)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        versions, ciphers = openssl_cipher_list(settings.protocols, settings.cipher_suites)
        context.minimum_version = _VERSIONS[versions[0]]
        context.maximum_version = _VERSIONS[versions[-1]]
        try:
            if ciphers:
                context.set_ciphers(ciphers)
            self._load(context)
        except ssl.SSLError as error:
            raise TlsSettingsError(
                f"OpenSSL cannot use the ssl settings: {error.reason}"
            ) from error
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        if self.trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            context.load_verify_locations(cadata=_pem(self.trusted).decode())
            # What is trusted may be the certificate itself, or one between it and the root.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.own is not None:
            with _private_file(self.own.key_pem + _pem(self.own.chain)) as path:
                context.load_cert_chain(path)


def _pem(certificates: tuple[x509.Certificate, ...]) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """Give data a path for as long as the body runs; in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kraftrio-key")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp(prefix="kraftrio-")
    try:
        os.write(descriptor, data)
        yield path
    finally:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            os.unlink(path)
