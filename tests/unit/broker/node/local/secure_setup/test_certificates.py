"""A certificate authority of one's own: what it issues holds together, and names who it is for."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from kraftrio.broker.node.local.secure_setup.certificates import (
    CERTIFICATE_DAYS,
    CertificateAuthority,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority(NOW)


def test_a_server_is_reached_by_its_names(authority: CertificateAuthority) -> None:
    store = authority.issue_server("node", ["kafka.example.com", "10.0.0.1", "::1"])
    leaf, issuer = x509.load_pem_x509_certificates(store)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka.example.com"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("10.0.0.1"),
        ipaddress.ip_address("::1"),
    ]
    assert leaf.subject.rfc4514_string() == "CN=node"
    leaf.verify_directly_issued_by(issuer)
    assert issuer == x509.load_pem_x509_certificate(authority.certificate)
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


def test_a_client_is_no_server(authority: CertificateAuthority) -> None:
    """A thief cannot pass for a node with it."""
    leaf = x509.load_pem_x509_certificates(authority.issue_client("admin"))[0]
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.CLIENT_AUTH}


def test_a_store_begins_with_its_key(authority: CertificateAuthority) -> None:
    """PKCS#8 without a password, and the key of the certificate behind it."""
    store = authority.issue_client("admin")
    assert store.startswith(b"-----BEGIN PRIVATE KEY-----")
    key = serialization.load_pem_private_key(store, None)
    leaf = x509.load_pem_x509_certificates(store)[0]
    assert key.public_key() == leaf.public_key()


def test_certificates_begin_a_little_before_now(authority: CertificateAuthority) -> None:
    leaf = x509.load_pem_x509_certificates(authority.issue_client("admin"))[0]
    assert leaf.not_valid_before_utc == NOW - timedelta(hours=1)
    assert leaf.not_valid_after_utc == NOW + timedelta(days=CERTIFICATE_DAYS)


def test_two_sides_believe_each_other(authority: CertificateAuthority, tmp_path: object) -> None:
    """OpenSSL's word for it: both certificates, with the strict rules of RFC 5280."""
    fresh = CertificateAuthority(datetime.now(UTC))
    folder = str(tmp_path)
    stores = {
        "server": fresh.issue_server("node", ["localhost"]),
        "client": fresh.issue_client("a"),
    }
    contexts = {}
    for role, purpose in (
        ("server", ssl.PROTOCOL_TLS_SERVER),
        ("client", ssl.PROTOCOL_TLS_CLIENT),
    ):
        path = f"{folder}/{role}.pem"
        with open(path, "wb") as file:
            file.write(stores[role])
        context = contexts[role] = ssl.SSLContext(purpose)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=fresh.certificate.decode())
        context.load_cert_chain(path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts["client"].wrap_bio(to_client, to_server, server_hostname="localhost")
    server = contexts["server"].wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = server.getpeercert()
    assert shown is not None and shown["subject"] == ((("commonName", "a"),),)
