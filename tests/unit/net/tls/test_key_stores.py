"""Key stores as users of Kafka have them: what is read, and what is wrong in one sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kraftrio.net.tls.jks import JksError, parse_jks
from kraftrio.net.tls.key_stores import KeyStoreError, load_key_store, load_trust_store
from kraftrio.net.tls.settings import TlsSettings
from tests.security.certificates import (
    PASSWORD,
    Authority,
    Identity,
    key_store,
    pem,
    trust_store,
)

ROOT = Authority()
MIDDLE = Authority("Middle CA", issuer=ROOT)
SERVER = MIDDLE.server()
KINDS = ("PEM", "PEM_INLINE", "PKCS12", "JKS")


def read_key(properties: dict[str, str]) -> tuple[bytes, tuple[x509.Certificate, ...]]:
    store = TlsSettings.from_properties(properties).keystore
    assert store is not None
    entry = load_key_store(store)
    return entry.key_pem, entry.chain


def read_trusted(properties: dict[str, str]) -> tuple[x509.Certificate, ...]:
    store = TlsSettings.from_properties(properties).truststore
    assert store is not None
    return load_trust_store(store)


@pytest.mark.parametrize("kind", KINDS)
def test_key_and_chain_of_each_kind(kind: str, tmp_path: Path) -> None:
    key, chain = read_key(key_store(tmp_path, SERVER, kind))
    assert key.decode() == SERVER.key_pem()
    assert chain == (SERVER.certificate, MIDDLE.certificate)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_trusted_of_each_kind(kind: str, tmp_path: Path) -> None:
    other = Authority("Other")
    found = read_trusted(trust_store(tmp_path, ROOT, other, kind=kind))
    assert set(found) == {ROOT.certificate, other.certificate}


@pytest.mark.parametrize("kind", ["PEM", "PEM_INLINE", "JKS"])
def test_a_key_may_have_a_password_of_its_own(kind: str, tmp_path: Path) -> None:
    properties = key_store(tmp_path, SERVER, kind, key_password="other")
    assert read_key(properties)[0].decode() == SERVER.key_pem()
    with pytest.raises(KeyStoreError, match=r"password of the key is wrong|ssl.key.password is wr"):
        read_key({**properties, "ssl.key.password": "wrong"})
    if kind != "JKS":
        del properties["ssl.key.password"]
        with pytest.raises(KeyStoreError, match=r"encrypted private key, but ssl.key.password is"):
            read_key(properties)


def test_jks_and_pkcs12_are_told_apart_by_the_file(tmp_path: Path) -> None:
    """As in Java: what keytool writes is PKCS#12, whatever the settings of old say."""
    for kind, other in (("JKS", "PKCS12"), ("PKCS12", "JKS")):
        properties = {**key_store(tmp_path, SERVER, kind), "ssl.keystore.type": other}
        assert read_key(properties)[1][0] == SERVER.certificate
        trusted = {**trust_store(tmp_path, ROOT, kind=kind), "ssl.truststore.type": other}
        assert read_trusted(trusted) == (ROOT.certificate,)


def test_pem_in_one_line_with_blanks(tmp_path: Path) -> None:
    """As it is in a property without line ends."""
    properties = key_store(tmp_path, SERVER, "PEM_INLINE")
    for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
        properties[name] = properties[name].replace("\n", " ")
    assert read_key(properties)[1] == (SERVER.certificate, MIDDLE.certificate)


def test_certificates_in_any_order(tmp_path: Path) -> None:
    properties = key_store(tmp_path, SERVER, "PEM_INLINE")
    chain = pem([ROOT.certificate, MIDDLE.certificate, SERVER.certificate])
    properties["ssl.keystore.certificate.chain"] = chain
    found = read_key(properties)[1]
    assert found == (SERVER.certificate, MIDDLE.certificate, ROOT.certificate)


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_a_key_that_everybody_may_read_is_refused(kind: str, tmp_path: Path) -> None:
    properties = key_store(tmp_path, SERVER, kind)
    path = Path(properties["ssl.keystore.location"])
    path.chmod(0o640)
    read_key(properties)  # a group of its own is usual
    path.chmod(0o644)
    with pytest.raises(KeyStoreError, match=r"may read or write it \(mode 0644\): run chmod o-rw"):
        read_key(properties)
    trusted = trust_store(tmp_path, ROOT, kind=kind)
    Path(trusted["ssl.truststore.location"]).chmod(0o644)
    read_trusted(trusted)


def mismatched(folder: Path) -> dict[str, str]:
    other = Identity(ROOT.server().key, SERVER.certificate)
    return key_store(folder, other, "PEM")


def missing(folder: Path) -> dict[str, str]:
    return {**key_store(folder, SERVER, "JKS"), "ssl.keystore.location": str(folder / "none")}


def wrong_password(kind: str) -> Callable[[Path], dict[str, str]]:
    return lambda folder: {**key_store(folder, SERVER, kind), "ssl.keystore.password": "no"}


def key_password_of_pkcs12(folder: Path) -> dict[str, str]:
    return {**key_store(folder, SERVER, "PKCS12"), "ssl.key.password": "other"}


def of_text(text: bytes, kind: str) -> Callable[[Path], dict[str, str]]:
    def write(folder: Path) -> dict[str, str]:
        properties = key_store(folder, SERVER, kind)
        Path(properties["ssl.keystore.location"]).write_bytes(text)
        return properties

    return write


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (mismatched, "the certificate does not belong to the private key"),
        (missing, "cannot be read: No such file or directory"),
        (wrong_password("JKS"), "its password is wrong, or the file was changed"),
        (wrong_password("PKCS12"), "ssl.keystore.password is wrong"),
        (key_password_of_pkcs12, "ssl.key.password is wrong: in a PKCS12 store"),
        (of_text(b"hello", "JKS"), "not a key store of type PKCS12 or JKS, or it is damaged"),
        (of_text(bytes.fromhex("cececece0000"), "JKS"), "only JKS, PKCS12 and PEM can be read"),
        (of_text(bytes.fromhex("feedfeed00000002"), "JKS"), "it is cut off"),
        (of_text(b"", "PEM"), "holds no private key"),
        (of_text(SERVER.key_pem().encode(), "PEM"), "holds no certificate for its private key"),
        (
            of_text(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "PEM"),
            "a private key that is damaged",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(
    make: Callable[[Path], dict[str, str]], sentence: str, tmp_path: Path
) -> None:
    properties = make(tmp_path)
    with pytest.raises(KeyStoreError) as caught:
        read_key(properties)
    text = str(caught.value)
    assert sentence in text
    assert text.startswith("ssl.keystore.location /") and "\n" not in text
    assert PASSWORD not in text


def test_an_empty_trust_store_is_refused(tmp_path: Path) -> None:
    properties = trust_store(tmp_path, kind="PEM")
    with pytest.raises(KeyStoreError, match="holds no trusted certificate"):
        read_trusted(properties)


def test_damage_anywhere_in_a_jks_store_is_found(tmp_path: Path) -> None:
    """Cut off at any byte, or with any bit of its head turned: refused, with no other error."""
    properties = key_store(tmp_path, SERVER, "JKS")
    data = Path(properties["ssl.keystore.location"]).read_bytes()
    damaged = [data[:size] for size in range(0, len(data), 7)]
    damaged += [
        data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :] for at in range(0, len(data), 5)
    ]
    for one in damaged:
        with pytest.raises(JksError):
            parse_jks(one, PASSWORD)


def test_without_a_password_a_trust_store_is_read_unchecked(tmp_path: Path) -> None:
    properties = trust_store(tmp_path, ROOT, kind="JKS")
    del properties["ssl.truststore.password"]
    assert read_trusted(properties) == (ROOT.certificate,)


@pytest.mark.parametrize("store_type", ["JKS", "PKCS12"])
def test_what_keytool_writes(store_type: str, tmp_path: Path) -> None:
    """Java's own tool, where there is one: its key store, with a certificate that it signed."""
    path = tmp_path / "java.ks"
    command = ["keytool", "-genkeypair", "-keyalg", "EC", "-dname", "CN=java", "-alias", "a"]
    command += ["-keystore", str(path), "-storetype", store_type]
    try:
        done = subprocess.run(
            [*command, "-storepass", PASSWORD, "-keypass", PASSWORD], capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("no keytool here")
    assert done.returncode == 0, done.stdout
    path.chmod(0o600)
    properties = {"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}
    key, chain = read_key(properties)
    assert chain[0].subject.rfc4514_string() == "CN=java"
    private = serialization.load_pem_private_key(key, None)
    public = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    own = chain[0].public_key().public_bytes(*public)
    assert private.public_key().public_bytes(*public) == own
