"""A certificate authority of one's own, and what it issues: a node's and an administrator's.

Owns: `CertificateAuthority`. Rules:
1. Keys are of P-256, which every client of Kafka can use; private keys are PKCS#8, unencrypted:
   their files protect them (mode 0600), as a password beside them in a property file would not.
2. A key store is one PEM text, the private key and then the certificates, as Kafka reads with
   `ssl.keystore.type=PEM`. librdkafka takes the same text as key and as certificate.
3. A certificate names its owner by CN; a server's also the names and addresses to reach it by.

Pure, but for the randomness of keys. Called by: `secure_setup/files`. RFC 5280; KIP-651 (PEM).
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825  # what Apple's systems accept at most

_CA_NAME: Final = "kraftrio certificate authority"
# Clocks of the machines may differ.
_BACKDATED: Final = datetime.timedelta(hours=1)


class CertificateAuthority:
    """A new authority; see the module.

    Args:
        now: when certificates begin to be valid, in UTC.
    """

    def __init__(self, now: datetime.datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(_CA_NAME)
        self._certificate = (
            _builder(self._name, self._name, self._key, now, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """Its own certificate, PEM: what others trust."""
        return _certificate_text(self._certificate)

    @property
    def private_key(self) -> bytes:
        """Its private key, PEM: with it further certificates can be issued."""
        return _key_text(self._key)

    def issue_server(self, name: str, hosts: Sequence[str]) -> bytes:
        """Return the key store of a node, which is a server to clients and a client to nodes.

        Args:
            hosts: the names and addresses that others reach it by.
        """
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(name, usage, [_general_name(host) for host in hosts])

    def issue_client(self, name: str) -> bytes:
        """Return the key store of a client."""
        return self._issue(name, [ExtendedKeyUsageOID.CLIENT_AUTH], [])

    def _issue(
        self, name: str, usage: list[x509.ObjectIdentifier], names: list[x509.GeneralName]
    ) -> bytes:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(name), self._name, key, self._now, CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return _key_text(key) + _certificate_text(certificate) + self.certificate


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_text(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
