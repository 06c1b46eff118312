"""Which cluster is meant, and what a Java client's properties file sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftrio.clients.cli.connect import TargetCluster, find_target
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.config import AdminConfig, ProducerConfig
from kraftrio.clients.errors import ConfigError


@pytest.fixture
def properties(tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=in-the-file:1\nlinger.ms=7\n")
    return str(path)


def test_what_is_nearer_wins(properties: str) -> None:
    environment = {"KRAFTRIO_BOOTSTRAP_SERVER": "in-the-environment:1"}
    assert find_target("given:1", properties, environment).servers == "given:1"
    assert find_target(None, properties, environment).servers == "in-the-file:1"
    assert find_target(None, None, environment).servers == "in-the-environment:1"
    assert find_target(None, None, {}).servers == "localhost:9092"


def test_what_is_no_address(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="must be HOST:PORT, not 'nowhere'") as error:
        find_target("nowhere", None, {})
    assert error.value.status == 2
    with pytest.raises(CommandError, match=r"cannot read .*: No such file or directory"):
        find_target(None, str(tmp_path / "nothing"), {})


def test_settings_by_their_kind() -> None:
    target = TargetCluster(
        "a:1",
        {
            "linger.ms": "7",
            "enable.idempotence": "false",
            "acks": "1",
            "compression.type": "zstd",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "partitioner": "com.example.Ours",
            "security.protocol": "PLAINTEXT",
        },
    )
    assert target.settings(ProducerConfig) == {
        "linger_ms": 7,
        "enable_idempotence": False,
        "acks": "1",
        "compression_type": "zstd",
        "security_protocol": "PLAINTEXT",
    }
    assert target.settings(AdminConfig) == {"security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("linger.ms", "soon", "linger.ms must be a whole number, not 'soon'"),
        ("enable.idempotence", "1", "enable.idempotence must be true or false, not '1'"),
        ("sasl.no.such.setting", "x", "sasl.no.such.setting cannot be obeyed"),
    ],
)
def test_wrong_settings(name: str, value: str, sentence: str) -> None:
    """Above all, no setting of security is passed over."""
    with pytest.raises(ConfigError, match=sentence):
        TargetCluster("a:1", {name: value}).settings(ProducerConfig)
