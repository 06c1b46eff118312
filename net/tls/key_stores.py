"""Reads key stores and trust stores: PEM (files, or inline), PKCS#12, and Java's JKS.

Owns: `load_key_store` and `load_trust_store`. Rules
1. As in Java, `JKS` and `PKCS12` are read by what the file is, whichever of them its type says:
   `keytool` has written PKCS#12 for years, under the name that everybody's settings still have.
2. A file with a private key that everybody may read is refused.
3. Whatever is wrong is one sentence that names the setting and the file, never a secret.

Files are read in the calling thread: at a start, or in a worker thread.

Called by: `contexts`.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12

from kraftrio.net.tls.jks import MAGIC, JksError, parse_jks
from kraftrio.net.tls.settings import PEM, StoreSettings, TlsSettingsError

_JCEKS_MAGIC: Final = bytes.fromhex("cececece")
_LONGEST_STORE: Final = 16 << 20
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE = 64
_DAMAGED_KEY = "that is damaged, or of a kind that is not known"

T = TypeVar("T")


class KeyStoreError(TlsSettingsError):
    """A key store that cannot be used; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key with its certificates.

    Attributes:
        key_pem: PKCS#8, not encrypted.
        chain: the key's own certificate first, then those of its issuers.
    """

    key_pem: bytes = field(repr=False)
    chain: tuple[x509.Certificate, ...]


def load_key_store(store: StoreSettings) -> KeyEntry:
    """Read the private key of a key store, and its certificates.

    Raises:
        KeyStoreError: it cannot be read, or does not hold what it should.
    """
    where = _where(store)
    if store.certificates is not None:
        assert store.key is not None
        return _pem_entry(store, store.key.reveal() + "\n" + store.certificates, where)
    data = _read(store, where)
    if store.type == PEM:
        return _pem_entry(store, data.decode("utf-8", "replace"), where)
    if data.startswith(MAGIC):
        return _jks_entry(store, data, where)
    return _pkcs12_entry(store, data, where)


def load_trust_store(store: StoreSettings) -> tuple[x509.Certificate, ...]:
    """Read the certificates that are trusted.

    Raises:
        KeyStoreError: it cannot be read, or holds none.
    """
    where = _where(store)
    if store.certificates is not None:
        found = _pem_certificates(store.certificates, where)
    else:
        data = _read(store, where)
        if store.type == PEM:
            found = _pem_certificates(data.decode("utf-8", "replace"), where)
        elif data.startswith(MAGIC):
            password = None if store.password is None else store.password.reveal()
            jks = _of_jks(lambda: parse_jks(data, password), where)
            found = [_certificate(der, where) for der in jks.trusted]
        else:
            entry = _pkcs12(store, data, where)
            found = [one.certificate for one in entry.additional_certs]
            found += [entry.cert.certificate] if entry.cert is not None else []
    if not found:
        raise KeyStoreError(f"{where} holds no trusted certificate")
    return tuple(found)


# -- files ---------------------------------------------------------------------------------------


def _where(store: StoreSettings) -> str:
    """The setting and the file, for the errors."""
    if store.location is None:
        part = "certificate.chain" if store.role == "keystore" else "certificates"
        return f"ssl.{store.role}.{part}"
    return f"ssl.{store.role}.location {store.location}"


def _read(store: StoreSettings, where: str) -> bytes:
    assert store.location is not None
    path = Path(store.location)
    try:
        found = path.stat()
        if store.role == "keystore" and found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise KeyStoreError(
                f"{where} holds a private key, but everybody may read or write it (mode"
                f" {stat.S_IMODE(found.st_mode):04o}): run chmod o-rw on it"
            )
        if found.st_size > _LONGEST_STORE:
            raise KeyStoreError(f"{where} has {found.st_size} bytes: that is not a key store")
        data = path.read_bytes()
    except OSError as error:
        raise KeyStoreError(f"{where} cannot be read: {error.strerror}") from error
    if data.startswith(_JCEKS_MAGIC):
        raise KeyStoreError(f"{where} is of type JCEKS: only JKS, PKCS12 and PEM can be read")
    return data


# -- PEM -----------------------------------------------------------------------------------------


def _blocks(text: str) -> list[tuple[str, str]]:
    """The PEM blocks of a text by their labels, in the usual lines, however they are broken here.

    A property in one line may have blanks in the place of line ends.
    """
    blocks = []
    for label, body in _BLOCK.findall(text):
        if ":" not in body:  # else it has headers of its own
            joined = "".join(body.split())
            lines = [joined[start : start + _LINE] for start in range(0, len(joined), _LINE)]
            body = "\n" + "\n".join(lines) + "\n"
        blocks.append((label, f"-----BEGIN {label}-----{body}-----END {label}-----\n"))
    return blocks


def _pem_certificates(text: str, where: str) -> list[x509.Certificate]:
    found = []
    for label, block in _blocks(text):
        if label == "CERTIFICATE":
            try:
                found.append(x509.load_pem_x509_certificate(block.encode()))
            except ValueError as error:
                raise KeyStoreError(f"{where} has a certificate that is damaged") from error
    return found


def _pem_entry(store: StoreSettings, text: str, where: str) -> KeyEntry:
    keys = [block for label, block in _blocks(text) if label.endswith("PRIVATE KEY")]
    if not keys:
        raise KeyStoreError(f"{where} holds no private key")
    password = None if store.key_password is None else store.key_password.reveal().encode()
    is_encrypted = "ENCRYPTED" in keys[0]
    if is_encrypted and password is None:
        raise KeyStoreError(
            f"{where} has an encrypted private key, but ssl.key.password is not set"
        )
    try:
        key = serialization.load_pem_private_key(
            keys[0].encode(), password if is_encrypted else None
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if is_encrypted:
            raise KeyStoreError(f"{where}: ssl.key.password is wrong") from error
        raise KeyStoreError(f"{where} has a private key {_DAMAGED_KEY}") from error
    return _entry(key, _pem_certificates(text, where), where)


# -- PKCS#12 -------------------------------------------------------------------------------------


def _pkcs12(store: StoreSettings, data: bytes, where: str) -> pkcs12.PKCS12KeyAndCertificates:
    password = None if store.password is None else store.password.reveal().encode()
    try:
        return pkcs12.load_pkcs12(data, password)
    except (ValueError, UnsupportedAlgorithm) as error:
        if "password" in str(error).lower():
            raise KeyStoreError(f"{where}: ssl.{store.role}.password is wrong") from error
        raise KeyStoreError(
            f"{where} is not a key store of type PKCS12 or JKS, or it is damaged"
        ) from error


def _pkcs12_entry(store: StoreSettings, data: bytes, where: str) -> KeyEntry:
    if store.key_password not in (None, store.password):
        raise KeyStoreError(
            f"{where}: ssl.key.password is wrong: in a PKCS12 store the key has the password of the"
            " store"
        )
    entry = _pkcs12(store, data, where)
    if entry.key is None or entry.cert is None:
        raise KeyStoreError(f"{where} holds no private key")
    others = [one.certificate for one in entry.additional_certs]
    return _entry(entry.key, [entry.cert.certificate, *others], where)


# -- JKS -----------------------------------------------------------------------------------------


def _of_jks(read: Callable[[], T], where: str) -> T:
    try:
        return read()
    except JksError as error:
        raise KeyStoreError(f"{where} cannot be used: {error}") from error


def _jks_entry(store: StoreSettings, data: bytes, where: str) -> KeyEntry:
    assert store.password is not None
    password = store.password.reveal()
    jks = _of_jks(lambda: parse_jks(data, password), where)
    if not jks.keys:
        raise KeyStoreError(f"{where} holds no private key")
    entry = jks.keys[0]
    key_password = password if store.key_password is None else store.key_password.reveal()
    der = _of_jks(lambda: entry.decrypt(key_password), where)
    try:
        key = serialization.load_der_private_key(der, None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyStoreError(f"{where} has a private key {_DAMAGED_KEY}") from error
    return _entry(key, [_certificate(one, where) for one in entry.chain], where)


def _certificate(der: bytes, where: str) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError as error:
        raise KeyStoreError(f"{where} has a certificate that is damaged") from error


# -- what they come to ---------------------------------------------------------------------------


def _entry(key: PrivateKeyTypes, found: Iterable[x509.Certificate], where: str) -> KeyEntry:
    """Find the certificate of a key, and the way from it to its root."""
    certificates = list(found)
    if not certificates:
        raise KeyStoreError(f"{where} holds no certificate for its private key")
    public = _public(key.public_key())
    own = next((one for one in certificates if _public(one.public_key()) == public), None)
    if own is None:
        raise KeyStoreError(f"{where}: the certificate does not belong to the private key")
    chain = [own]
    while True:
        issuer = chain[-1].issuer
        above = next(
            (one for one in certificates if one.subject == issuer and one not in chain), None
        )
        if above is None:
            break
        chain.append(above)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return KeyEntry(key_pem, tuple(chain))


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
