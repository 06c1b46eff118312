"""One secure node: its properties fit its files, and the broker understands them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from kraftrio.base.properties import parse_properties
from kraftrio.broker.node.local.secure_node import secure_node_files
from kraftrio.broker.node.local.secure_setup.secure_setup import write_setup

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def made(folder: Path, *hosts: str) -> dict[str, str]:
    """Make a node and return its properties."""
    write_setup(secure_node_files(str(folder), hosts, 9500, now=NOW, password="open-sesame"))
    return parse_properties((folder / "server.properties").read_text())


def test_a_node_for_this_machine(tmp_path: Path) -> None:
    properties = made(tmp_path)
    assert properties["listeners"] == (
        "SASL_SSL://localhost:9500,SSL://localhost:9502,CONTROLLER://localhost:9501"
    )
    assert properties["controller.quorum.voters"] == "1@localhost:9501"
    assert properties["log.dirs"] == str(tmp_path / "data")
    assert properties["inter.broker.listener.name"] == "SSL"


def test_a_node_for_others(tmp_path: Path) -> None:
    """It listens everywhere; the first name is advertised, and its certificate has them all."""
    properties = made(tmp_path, "kafka.example.com", "10.0.0.9")
    assert properties["listeners"].startswith("SASL_SSL://:9500,")
    assert properties["advertised.listeners"].startswith("SASL_SSL://kafka.example.com:9500,")
    store = Path(properties["ssl.keystore.location"]).read_bytes()
    leaf = x509.load_pem_x509_certificates(store)[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka.example.com", "localhost"]
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    assert list(addresses) == ["10.0.0.9", "127.0.0.1", "::1"]
