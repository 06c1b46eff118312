"""Java's own key stores (type JKS): reads their private keys and certificates.

There is a library for it, pyjks, whose last release is of 2020 and needs a compiler for a cipher of
another format. The format is small: a header, entries, and a SHA-1 of all of it with the password;
a private key is encrypted with a stream of SHA-1 hashes. It is weak by today's measure, so that the
file has to be protected like a key without a password. Pure. Format: JavaKeyStore of OpenJDK.

Called by: `key_stores`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = bytes.fromhex("feedfeed")

_VERSIONS = (1, 2)
_PRIVATE_KEY = 1
_TRUSTED = 2
_SALT_BYTES = _SEAL_BYTES = hashlib.sha1().digest_size
_PEPPER = b"Mighty Aphrodite"
# The cipher of private keys, 1.3.6.1.4.1.42.2.17.1.1, as its DER says it.
_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")


class JksError(ValueError):
    """No such key store, or not with this password; the text says which."""


@dataclass(frozen=True, slots=True)
class ProtectedKey:
    """A private key that is not decrypted yet, with its certificates.

    Attributes:
        data: DER of the EncryptedPrivateKeyInfo.
        chain: DER of its certificates, its own first.
    """

    alias: str
    data: bytes = field(repr=False)
    chain: tuple[bytes, ...]

    def decrypt(self, password: str) -> bytes:
        """Return the key as DER of PKCS#8.

        Raises:
            JksError: the password is another one, or the key is not protected as usual.
        """
        sealed = _protected_bytes(self.data)
        salt, encrypted = sealed[:_SALT_BYTES], sealed[_SALT_BYTES:-_SEAL_BYTES]
        secret = password.encode("utf-16-be")
        stream, block = bytearray(), salt
        while len(stream) < len(encrypted):
            block = hashlib.sha1(secret + block).digest()
            stream += block
        plain = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
        seal = hashlib.sha1(secret + plain).digest()
        if not hmac.compare_digest(seal, sealed[-_SEAL_BYTES:]):
            raise JksError("the password of the key is wrong")
        return plain


@dataclass(frozen=True, slots=True)
class JksStore:
    """What a key store holds; certificates are DER."""

    keys: tuple[ProtectedKey, ...]
    trusted: tuple[bytes, ...]


def parse_jks(data: bytes, password: str | None) -> JksStore:
    """Read a key store.

    Args:
        password: None: whether the file was changed is not checked (of trust stores, as in Java).

    Raises:
        JksError: the bytes are no key store, or the password is wrong.
    """
    reader = _JksReader(data, len(data) - _SEAL_BYTES)
    if reader.take(4) != MAGIC:
        raise JksError("it is not a key store of type JKS")
    version, count = reader.number(), reader.number()
    if version not in _VERSIONS:
        raise JksError(f"it is of version {version}, which is not known")
    keys, trusted = [], []
    for _ in range(count):
        kind, alias, _date = reader.number(), reader.text(), reader.take(8)
        if kind == _PRIVATE_KEY:
            key = reader.block()
            chain = tuple(reader.certificate(version) for _ in range(reader.number()))
            keys.append(ProtectedKey(alias, key, chain))
        elif kind == _TRUSTED:
            trusted.append(reader.certificate(version))
        else:
            raise JksError(f"it has an entry of kind {kind}, which is not known")
    if reader.position != len(data) - _SEAL_BYTES:
        raise JksError("it is longer than its entries")
    if password is not None:
        seal = hashlib.sha1(password.encode("utf-16-be") + _PEPPER + data[:-_SEAL_BYTES])
        if not hmac.compare_digest(seal.digest(), data[-_SEAL_BYTES:]):
            raise JksError("its password is wrong, or the file was changed")
    return JksStore(tuple(keys), tuple(trusted))


class _JksReader:
    """Reads big-endian values, never beyond the end."""

    def __init__(self, data: bytes, end: int) -> None:
        self._data = data
        self._end = end
        self.position = 0

    def take(self, size: int) -> bytes:
        start = self.position
        if size > self._end - start:
            raise JksError("it is cut off")
        self.position = start + size
        return self._data[start : self.position]

    def number(self) -> int:
        value: int = struct.unpack(">I", self.take(4))[0]
        return value

    def text(self) -> str:
        (size,) = struct.unpack(">H", self.take(2))
        return self.take(size).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self.take(self.number())

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.text()  # X.509
        return self.block()


def _protected_bytes(data: bytes) -> bytes:
    """The octets within an EncryptedPrivateKeyInfo: SEQUENCE { algorithm, OCTET STRING }."""
    tag, info, _ = _der(data)
    tag_of_algorithm, algorithm, rest = _der(info)
    tag_of_octets, octets, _ = _der(rest)
    if (tag, tag_of_algorithm, tag_of_octets) != (0x30, 0x30, 0x04):
        raise JksError("its private key is damaged")
    if not algorithm.startswith(_KEY_PROTECTOR):
        raise JksError("its private key is not protected as Java does it")
    if len(octets) < _SALT_BYTES + _SEAL_BYTES:
        raise JksError("its private key is damaged")
    return octets


def _der(data: bytes) -> tuple[int, bytes, bytes]:
    """Split off the first element: its tag, its content, and what follows."""
    if len(data) < 2:
        raise JksError("its private key is damaged")
    size, start = data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if start + size > len(data):
        raise JksError("its private key is damaged")
    return data[0], data[start : start + size], data[start + size :]
