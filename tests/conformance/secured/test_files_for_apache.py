"""The files of `kraftrio security init` with Apache Kafka: its broker starts with them.

The same files, with the users that they name, and clients of all kinds; nobody else gets in.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from kraftrio import Admin
from kraftrio.base.properties import parse_properties
from kraftrio.clients.security import security_settings
from kraftrio.errors import AuthenticationError, NetworkError, TimedOutError
from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.clients.install import kcat, python_client
from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.conformance.secured.broker import free_ports

pytestmark = pytest.mark.timeout(240)

DEADLINE_S = 120.0


def properties_of(folder: Path, name: str) -> dict[str, str]:
    return parse_properties((folder / f"{name}.properties").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files, with Apache Kafka started by them."""
    apache = apache_kafka()
    folder = tmp_path_factory.mktemp("apache") / "node"
    init = [sys.executable, "-P", "-m", "kraftrio", "security", "init", "--data", str(folder)]
    port = free_ports(3)[0]
    subprocess.run([*init, "--port", str(port)], check=True, stdout=subprocess.DEVNULL)
    server = str(folder / "server.properties")
    cluster_id = urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    first_user = (folder / "security" / "first-users").read_text().strip()
    prepare = ["format", "-t", cluster_id, "-c", server, "--add-scram", first_user]
    subprocess.run(apache.tool_command("kafka-storage", prepare), check=True, capture_output=True)
    log = folder.with_suffix(".log")
    command = [*apache.java_command(flags=apache.BROKER_FLAGS), apache.TOOLS["kafka-server"]]
    with log.open("w") as output:
        process = subprocess.Popen([*command, server], stdout=output, stderr=output)
    try:
        wait_ready(folder, process, log)
        yield folder
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
    assert "ssl.client.auth" not in log.read_text(), "no warning of settings without a listener"


def wait_ready(folder: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Ask by certificate until there is an answer."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        with contextlib.suppress(NetworkError, TimedOutError):
            trio.run(topics, properties_of(folder, "client-certificate"))
            return
        time.sleep(0.2)


async def topics(properties: dict[str, str]) -> list[str]:
    servers = properties["bootstrap.servers"]
    settings = security_settings(properties)
    async with Admin(servers, **settings, default_api_timeout_ms=5000) as admin:
        return sorted(await admin.list_topics())


@pytest.mark.parametrize("name", ["client", "client-certificate"])
def test_apaches_tools_and_our_clients_administer(
    folder: Path, tool_runner: ToolRunner, name: str
) -> None:
    properties = properties_of(folder, name)
    tools = KafkaTools(properties["bootstrap.servers"], tool_runner)
    config = ["--command-config", str(folder / f"{name}.properties")]
    tools.run("kafka-topics", "--create", "--topic", name, *config).check()
    assert name in trio.run(topics, properties)


def test_kcat_lists_what_there_is(folder: Path) -> None:
    """By certificate: an old librdkafka's SCRAM is refused by Apache Kafka itself."""
    program = kcat()
    done = subprocess.run(
        [program.path, "-F", str(folder / "librdkafka-certificate.properties"), "-L"],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env=os.environ | program.environment,
    )
    assert done.returncode == 0, done.stderr
    assert "1 brokers" in done.stdout


def test_librdkafka_logs_in_by_password(folder: Path) -> None:
    admin = python_client("confluent_kafka.admin").AdminClient(properties_of(folder, "librdkafka"))
    assert len(admin.list_topics(timeout=DEADLINE_S).brokers) == 1


def test_a_wrong_password_does_not_get_in(folder: Path) -> None:
    properties = properties_of(folder, "client")
    jaas = properties["sasl.jaas.config"].replace('password="', 'password="x')
    with pytest.raises(AuthenticationError):
        trio.run(topics, {**properties, "sasl.jaas.config": jaas})
