"""The files of a secure node: which there are, who may read them, and that none is overwritten."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kraftrio.base.properties import parse_properties
from kraftrio.broker.node.local.secure_setup.property_files import NodeAddress
from kraftrio.broker.node.local.secure_setup.secure_setup import (
    SecureSetup,
    SecureSetupError,
    write_setup,
)
from kraftrio.broker.node.security.first_users import first_credentials
from kraftrio.wire.sasl.scram_keys import ScramMechanism, credential_of, salted_password

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PASSWORD = "open-sesame"


def setup_in(folder: Path) -> SecureSetup:
    nodes = {1: NodeAddress("kafka.example.com", 9092, ""), 2: NodeAddress("::1", 9095, "::1")}
    return SecureSetup(str(folder), nodes)


def test_only_the_owner_reads_keys_and_passwords(tmp_path: Path) -> None:
    setup = setup_in(tmp_path)
    write_setup(setup.files(NOW, PASSWORD))
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    public = {name for name, mode in modes.items() if mode != 0o600}
    assert public == {"security/ca.pem"}
    assert {"security/ca.key", "security/node-1.pem", "security/node-2.pem"} < modes.keys()
    for name in public:
        assert b"PRIVATE KEY" not in (tmp_path / name).read_bytes()
        assert PASSWORD.encode() not in (tmp_path / name).read_bytes()
    assert PASSWORD not in repr(setup.files(NOW, PASSWORD))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Where one file is there, none is written; what was written before stays as it was."""
    kept = tmp_path / "librdkafka.properties"
    kept.write_text("mine")
    with pytest.raises(SecureSetupError) as caught:
        write_setup(setup_in(tmp_path).files(NOW, PASSWORD))
    assert str(caught.value) == (
        f"{kept} is there already: nothing was written, and nothing is overwritten"
    )
    assert kept.read_text() == "mine"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SecureSetupError, match=r"cannot write .*/file/security: Not a directory"):
        write_setup(setup_in(tmp_path / "file").files(NOW, PASSWORD))


def test_client_files_say_where_and_as_whom(tmp_path: Path) -> None:
    setup = setup_in(tmp_path)
    texts = {Path(file.path).name: file.content.decode() for file in setup.files(NOW, PASSWORD)}
    java = parse_properties(texts["client.properties"])
    assert java["bootstrap.servers"] == "kafka.example.com:9092,[::1]:9095"
    assert java["security.protocol"] == "SASL_SSL"
    assert f'username="admin" password="{PASSWORD}";' in java["sasl.jaas.config"]
    by_certificate = parse_properties(texts["client-certificate.properties"])
    assert by_certificate["bootstrap.servers"] == "kafka.example.com:9094,[::1]:9097"
    assert by_certificate["ssl.keystore.location"] == f"{tmp_path}/security/admin.pem"
    other = dict(line.split("=", 1) for line in texts["librdkafka.properties"].splitlines())
    assert (other["sasl.username"], other["sasl.password"]) == ("admin", PASSWORD)
    assert other["ssl.ca.location"] == java["ssl.truststore.location"]


def test_a_node_listens_for_three_kinds_of_peers(tmp_path: Path) -> None:
    properties = setup_in(tmp_path).node_properties(1)
    assert properties["listeners"] == "SASL_SSL://:9092,SSL://:9094,CONTROLLER://:9093"
    assert properties["advertised.listeners"] == (
        "SASL_SSL://kafka.example.com:9092,SSL://kafka.example.com:9094"
    )
    assert properties["super.users"] == "User:kraftrio-node;User:admin"
    assert properties["ssl.keystore.location"] == f"{tmp_path}/security/node-1.pem"


def test_the_administrator_is_a_first_user(tmp_path: Path) -> None:
    """As `kraftrio start --add-scram` reads it; the password itself is not there."""
    setup = setup_in(tmp_path)
    write_setup(setup.files(NOW, PASSWORD))
    text = Path(setup.node_properties(2)["kraftrio.first.users.file"]).read_text()
    (record,) = first_credentials(text.splitlines(), lambda _size: b"")
    salted = salted_password(ScramMechanism.SCRAM_SHA_512, PASSWORD, record.salt, record.iterations)
    expected = credential_of(ScramMechanism.SCRAM_SHA_512, salted, record.salt, record.iterations)
    assert (record.name, record.stored_key) == ("admin", expected.stored_key)
    assert PASSWORD not in text


def test_unusual_folder_names_survive_java(tmp_path: Path) -> None:
    """java.util.Properties reads Latin-1 and escapes."""
    folder = tmp_path / "Müller \\ 😀"
    setup = SecureSetup(str(folder), {1: NodeAddress("localhost", 9092, "localhost")})
    text = next(
        file.content
        for file in setup.files(NOW, PASSWORD)
        if file.path.endswith("/client.properties")
    )
    assert text.isascii()
    assert parse_properties(text.decode())["ssl.truststore.location"] == setup.trust_store
