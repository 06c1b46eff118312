"""Certificates for tests: an authority, what it signs, and key stores as users of Kafka have them.

    ca = Authority()
    server = ca.server()                           # localhost, 127.0.0.1 and ::1
    client = ca.client("alice")                    # CN=alice
    properties = key_store(folder, server) | trust_store(folder, ca)

The properties are Kafka's (`ssl.keystore.location`, ...), so both kinds of broker, Java's clients
and ours take them; librdkafka and other clients take the PEM files of `pem_files`. Keys are of
P-256, which costs little; files with keys are for their owner alone.
"""

from __future__ import annotations

import hashlib
import ipaddress
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID

PASSWORD = "store-secret"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A private key with its certificate, and the certificates that lead to the authority."""

    key: PrivateKey
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...] = ()

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        return (self.certificate, *self.issuers)

    def key_pem(self, password: str | None = None) -> str:
        """The private key as PKCS#8, encrypted where there is a password."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, _encryption(password)
        ).decode()

    def chain_pem(self) -> str:
        return pem(self.chain)


def pem(certificates: Sequence[x509.Certificate]) -> str:
    """Certificates as PEM, one after the other."""
    return "".join(one.public_bytes(serialization.Encoding.PEM).decode() for one in certificates)


def _encryption(password: str | None) -> serialization.KeySerializationEncryption:
    if password is None:
        return serialization.NoEncryption()
    return serialization.BestAvailableEncryption(password.encode())


def name_of(text: str) -> x509.Name:
    """A name by its RFC 4514 text; one without `=` is a common name."""
    return x509.Name.from_rfc4514_string(text if "=" in text else f"CN={text}")


def new_key(*, use_rsa: bool = False) -> PrivateKey:
    if use_rsa:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


class Authority:
    """Signs certificates: a root, or one that another authority vouches for."""

    def __init__(self, name: str = "Test CA", *, issuer: Authority | None = None) -> None:
        self.key = new_key()
        self.name = name_of(name)
        signer = self if issuer is None else issuer
        builder = _builder(self.name, signer.name, self.key, -_DAY, 3650 * _DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        builder = builder.add_extension(
            x509.KeyUsage(False, False, False, False, False, True, True, False, False), True
        )
        self.certificate: x509.Certificate = _signed(builder, self.key, signer)
        # What has to be shown with a certificate of this authority: the root is known.
        self._shown: tuple[x509.Certificate, ...] = ()
        if issuer is not None:
            self._shown = (self.certificate, *issuer._shown)

    def issue(
        self,
        subject: str,
        *,
        hosts: Sequence[str] = (),
        usages: Sequence[x509.ObjectIdentifier] = (
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.CLIENT_AUTH,
        ),
        begins_in: timedelta = -_DAY,
        ends_in: timedelta = 365 * _DAY,
        key: PrivateKey | None = None,
        use_rsa: bool = False,
    ) -> Identity:
        """Sign a certificate.

        Args:
            subject: a common name, or a whole name (`CN=a,O=b`).
            hosts: names and addresses that it is for.
            begins_in, ends_in: when it is valid, counted from now.
        """
        key = key or new_key(use_rsa=use_rsa)
        builder = _builder(name_of(subject), self.name, key, begins_in, ends_in)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, False)
        return Identity(key, _signed(builder, key, self), self._shown)

    def server(self, subject: str = "localhost", hosts: Sequence[str] = LOCAL_HOSTS) -> Identity:
        """A broker's: also for the connections that it makes."""
        return self.issue(subject, hosts=hosts)

    def client(self, subject: str) -> Identity:
        return self.issue(subject, usages=(ExtendedKeyUsageOID.CLIENT_AUTH,))

    def expired(self, subject: str = "localhost") -> Identity:
        return self.issue(subject, hosts=LOCAL_HOSTS, begins_in=-9 * _DAY, ends_in=-2 * _DAY)

    def not_yet_valid(self, subject: str = "localhost") -> Identity:
        return self.issue(subject, hosts=LOCAL_HOSTS, begins_in=2 * _DAY)

    def wrong_host(self) -> Identity:
        """Of a server elsewhere."""
        return self.server("elsewhere.example", ["elsewhere.example"])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    begins_in: timedelta,
    ends_in: timedelta,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins_in)
        .not_valid_after(now + ends_in)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _signed(
    builder: x509.CertificateBuilder, key: PrivateKey, signer: Authority
) -> x509.Certificate:
    own = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    return builder.add_extension(own, False).sign(signer.key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


# -- files ---------------------------------------------------------------------------------------


def write_private(path: Path, data: bytes | str) -> Path:
    """Write a file that only its owner may read; one that is there is replaced as a whole."""
    whole = data.encode() if isinstance(data, str) else data
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(whole)
    new.chmod(0o600)
    return new.replace(path)


def key_store(
    folder: Path,
    identity: Identity,
    kind: str = "PEM",
    *,
    name: str = "keystore",
    password: str = PASSWORD,
    key_password: str | None = None,
) -> dict[str, str]:
    """Write a key store and return the properties that name it.

    Args:
        kind: PEM, PEM_INLINE (no file), PKCS12 or JKS.
        key_password: of the key, where it is another than the store's (JKS), or has one (PEM).
    """
    properties = {"ssl.keystore.type": kind.removesuffix("_INLINE")}
    if key_password is not None:
        properties["ssl.key.password"] = key_password
    if kind == "PEM_INLINE":
        properties["ssl.keystore.key"] = identity.key_pem(key_password)
        properties["ssl.keystore.certificate.chain"] = identity.chain_pem()
        return properties
    if kind == "PEM":
        data = (identity.key_pem(key_password) + identity.chain_pem()).encode()
    elif kind == "PKCS12":
        properties["ssl.keystore.password"] = password
        data = pkcs12.serialize_key_and_certificates(
            b"own", identity.key, identity.certificate, identity.issuers, _encryption(password)
        )
    else:
        properties["ssl.keystore.password"] = password
        data = _jks({"own": (identity, key_password or password)}, {}, password)
    suffix = {"PEM": "pem", "PKCS12": "p12", "JKS": "jks"}[kind]
    path = write_private(folder / f"{name}.{suffix}", data)
    return {**properties, "ssl.keystore.location": str(path)}


def trust_store(
    folder: Path,
    *authorities: Authority,
    kind: str = "PEM",
    name: str = "truststore",
    password: str = PASSWORD,
) -> dict[str, str]:
    """Write a trust store and return the properties that name it; kinds as for `key_store`."""
    properties = {"ssl.truststore.type": kind.removesuffix("_INLINE")}
    trusted = {f"ca{index}": one.certificate for index, one in enumerate(authorities)}
    if kind == "PEM_INLINE":
        return {**properties, "ssl.truststore.certificates": pem(list(trusted.values()))}
    if kind == "PEM":
        data = pem(list(trusted.values())).encode()
    else:
        properties["ssl.truststore.password"] = password
        if kind == "PKCS12":
            entries = [
                pkcs12.PKCS12Certificate(certificate, alias.encode())
                for alias, certificate in trusted.items()
            ]
            data = pkcs12.serialize_java_truststore(entries, _encryption(password))
        else:
            data = _jks({}, trusted, password)
    suffix = {"PEM": "pem", "PKCS12": "p12", "JKS": "jks"}[kind]
    path = write_private(folder / f"{name}.{suffix}", data)
    return {**properties, "ssl.truststore.location": str(path)}


@dataclass(frozen=True)
class PemFiles:
    """What clients other than Java's are given: `ssl.ca.location` and the like."""

    ca: Path
    certificate: Path
    key: Path


def pem_files(folder: Path, authority: Authority, identity: Identity, name: str) -> PemFiles:
    """Write the authority, the chain and the key into a file each."""
    return PemFiles(
        write_private(folder / f"{name}-ca.pem", pem([authority.certificate])),
        write_private(folder / f"{name}.pem", identity.chain_pem()),
        write_private(folder / f"{name}-key.pem", identity.key_pem()),
    )


# -- Java's own format ---------------------------------------------------------------------------

_JKS_MAGIC = 0xFEEDFEED
_KEY_PROTECTOR = bytes.fromhex("300e060a2b060104012a021101010500")  # its AlgorithmIdentifier
_SALT = bytes(range(20))


def _jks(
    keys: Mapping[str, tuple[Identity, str]],
    trusted: Mapping[str, x509.Certificate],
    password: str,
) -> bytes:
    """A key store of Java's type JKS, version 2."""
    body = struct.pack(">III", _JKS_MAGIC, 2, len(keys) + len(trusted))
    for alias, (identity, key_password) in keys.items():
        protected = _protected(identity, key_password)
        body += struct.pack(">I", 1) + _text(alias) + struct.pack(">Q", 0)
        body += struct.pack(">I", len(protected)) + protected
        body += struct.pack(">I", len(identity.chain))
        for certificate in identity.chain:
            body += _certificate(certificate)
    for alias, certificate in trusted.items():
        body += struct.pack(">I", 2) + _text(alias) + struct.pack(">Q", 0)
        body += _certificate(certificate)
    seal = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body)
    return body + seal.digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def _certificate(certificate: x509.Certificate) -> bytes:
    data = certificate.public_bytes(serialization.Encoding.DER)
    return _text("X.509") + struct.pack(">I", len(data)) + data


def _protected(identity: Identity, password: str) -> bytes:
    """An EncryptedPrivateKeyInfo with the cipher of Java's key stores: SHA-1 as a key stream."""
    plain = identity.key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    secret = password.encode("utf-16-be")
    stream, block = b"", _SALT
    while len(stream) < len(plain):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    encrypted = bytes(a ^ b for a, b in zip(plain, stream, strict=False))
    sealed = _SALT + encrypted + hashlib.sha1(secret + plain).digest()
    return _sequence(_KEY_PROTECTOR + _der(0x04, sealed))


def _sequence(content: bytes) -> bytes:
    return _der(0x30, content)


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
