"""The keys of SCRAM (RFC 5802, RFC 7677): hashes, salted passwords, proofs and signatures.

A password is never normalized (SASLprep): clients of Kafka do not, and would be refused.

Called by: both sides of an exchange, the controller (`AlterUserScramCredentials` brings salted
passwords), and what makes a credential from a password.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384


class ScramMechanism(IntEnum):
    """The mechanisms, by their number in requests and records (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The mechanism's name in SaslHandshake and in settings."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @classmethod
    def of_name(cls, name: str) -> ScramMechanism | None:
        """Return the mechanism of a name; None: it is not one of SCRAM's."""
        return _BY_NAME.get(name)

    @classmethod
    def of_number(cls, number: int) -> ScramMechanism | None:
        """Return the mechanism of a number in a request; None: there is none."""
        return _BY_NUMBER.get(number)


_BY_NAME: Final = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}
_BY_NUMBER: Final = {int(mechanism): mechanism for mechanism in ScramMechanism}

_HASHES: Final[dict[ScramMechanism, Callable[..., hashlib._Hash]]] = {
    ScramMechanism.SCRAM_SHA_256: hashlib.sha256,
    ScramMechanism.SCRAM_SHA_512: hashlib.sha512,
}


class ScramCredential(NamedTuple):
    """What a server keeps of a password: enough to check a proof, not enough to make one."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return RFC 5802's SaltedPassword: as slow as the iterations make it (4096: 2 ms)."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return what a server keeps of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramCredential(
        salt=salt,
        stored_key=_hash(mechanism, client_key),
        server_key=_hmac(mechanism, salted, b"Server Key"),
        iterations=iterations,
    )


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """Return what proves to a server that the client knows the password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = _hash(mechanism, client_key)
    return _xor(client_key, _hmac(mechanism, stored_key, auth_message))


def is_proof(
    mechanism: ScramMechanism, credential: ScramCredential, proof: bytes, auth_message: bytes
) -> bool:
    """Whether a client knows the password of a credential."""
    signature = _hmac(mechanism, credential.stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    client_key = _xor(proof, signature)
    stored_key = _hash(mechanism, client_key)
    return hmac.compare_digest(stored_key, credential.stored_key)


def server_signature(mechanism: ScramMechanism, server_key: bytes, auth_message: bytes) -> bytes:
    """Return what proves to a client that the server knows the credential."""
    return _hmac(mechanism, server_key, auth_message)


def server_key_of(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key that a server signs with, as the client computes it."""
    return _hmac(mechanism, salted, b"Server Key")


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return _HASHES[mechanism](data).digest()


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """Return the HMAC (RFC 2104) by a key that is no longer than a block of the hash.

    In a quarter of `hmac.digest`'s time, in which OpenSSL looks for the hash by its name: a login
    needs several.
    """
    new = _HASHES[mechanism]
    inner = new()
    padded = key.ljust(inner.block_size, b"\0")
    assert len(padded) == inner.block_size, "keys of SCRAM are hashes"
    inner.update(padded.translate(hmac.trans_36) + message)
    return new(padded.translate(hmac.trans_5C) + inner.digest()).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    assert len(left) == len(right), "both are hashes"
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")
