"""The keys of SCRAM: what a proof must be, and that nothing secret is shown."""

from __future__ import annotations

import hmac

import pytest

from kraftrio.wire.sasl.scram_keys import (
    ScramMechanism,
    client_proof,
    credential_of,
    is_proof,
    salted_password,
    server_signature,
)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_only_the_password_makes_a_proof(mechanism: ScramMechanism) -> None:
    salted = salted_password(mechanism, "secret", b"salt", 16)
    credential = credential_of(mechanism, salted, b"salt", 16)
    proof = client_proof(mechanism, salted, b"signed")
    assert is_proof(mechanism, credential, proof, b"signed")
    assert not is_proof(mechanism, credential, proof, b"signed else")
    assert not is_proof(mechanism, credential, proof[:-1], b"signed")
    assert not is_proof(mechanism, credential, b"", b"signed")
    other = salted_password(mechanism, "Secret", b"salt", 16)
    assert not is_proof(mechanism, credential, client_proof(mechanism, other, b"signed"), b"signed")


def test_mechanisms_by_name_and_number() -> None:
    assert ScramMechanism.of_name("SCRAM-SHA-512") is ScramMechanism.SCRAM_SHA_512
    assert ScramMechanism.of_name("SCRAM-SHA-1") is None
    assert ScramMechanism.of_number(1) is ScramMechanism.SCRAM_SHA_256
    assert ScramMechanism.of_number(0) is None


def test_a_credential_is_not_shown() -> None:
    credential = credential_of(ScramMechanism.SCRAM_SHA_256, b"salted", b"salt", 4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("key_bytes", [0, 1, 32, 64])
def test_signatures_are_hmacs(mechanism: ScramMechanism, key_bytes: int) -> None:
    key = bytes(range(key_bytes))
    for message in (b"", b"signed", b"signed" * 100):
        expected = hmac.digest(key, message, mechanism.hash_name)
        assert server_signature(mechanism, key, message) == expected
