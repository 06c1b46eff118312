"""Which brokers the pipeline works with: options, and a Java client's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftrio.clients.pipeline.brokers import BrokerAccess, find_brokers
from kraftrio.clients.pipeline.failures import PipelineError

FILE = """
bootstrap.servers=a:1,b:2
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location=/ca.pem
ssl.key.password=hush-hush
group.id=mine
"""


def test_a_file_says_where_and_how(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(FILE)
    found = find_brokers(None, file)
    assert found is not None and found.servers == "a:1,b:2"
    assert found.security == {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": "/ca.pem",
        "ssl_key_password": "hush-hush",
    }
    assert found.spark_options == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.key.password": "hush-hush",
    }
    assert "hush-hush" not in repr(found)


def test_the_option_names_other_brokers(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(FILE)
    found = find_brokers("c:3", file)
    assert found is not None and found.servers == "c:3"
    assert found.security["security_protocol"] == "SSL"


def test_without_a_file() -> None:
    assert find_brokers(None, None) is None
    assert find_brokers("c:3", None) == BrokerAccess("c:3")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot read"):
        find_brokers(None, tmp_path / "none")
