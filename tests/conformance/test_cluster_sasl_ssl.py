"""Three nodes whose links all log in by SCRAM over TLS: clients, brokers, controllers, the quorum.

All is as in plaintext: nodes are killed and come back, also all of them at once, and nothing that
was acknowledged is lost. The listener in plaintext is only for the test's own questions.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kraftrio.broker.node.local.cluster_layout import free_ports
from tests.conformance.clients.install import kcat
from tests.conformance.cluster_calls import create
from tests.conformance.cluster_process import HOST, Cluster, Properties
from tests.security.certificates import Authority, key_store, pem_files, trust_store

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NODE_JAAS = f'{SCRAM} required username="node" password="node-secret";'
USERS = ("node", "node-secret"), ("alice", "alice-secret")
TOPIC = "secured"


class Secured:
    """The cluster, and a client that logs in to it."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        identity = authority.server("node")
        stores = key_store(directory, identity) | trust_store(directory, authority)
        self.ca = pem_files(directory, authority, identity, "client").ca
        self.ports = dict(enumerate(free_ports(3, HOST, random.SystemRandom()), start=1))

        def overrides(node_id: int, ports: Mapping[int, int]) -> Properties:
            listeners = {
                "PLAINTEXT": ports[node_id],
                "OUTSIDE": self.ports[node_id],
                "INSIDE": 0,
                "CONTROLLER": ports[node_id] + 1,
            }
            of_nodes = {
                f"listener.name.{name}.scram-sha-512.sasl.jaas.config": NODE_JAAS
                for name in ("inside", "controller")
            }
            return {
                "listeners": ",".join(f"{name}://{HOST}:{at}" for name, at in listeners.items()),
                "inter.broker.listener.name": "INSIDE",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL,"
                "INSIDE:SASL_SSL,CONTROLLER:SASL_SSL",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
                **of_nodes,
                **stores,
            }

        self.cluster = Cluster(directory / "nodes", node_overrides=overrides, kind="kraftrio")
        for node in self.cluster.nodes.values():
            for user, password in USERS:
                node.options += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]

    def kcat(self, *options: str, text: str | None = None, password: str = "alice-secret") -> str:
        """Run kcat as alice; return what it prints, or says of a refusal."""
        found = kcat()
        addresses = ",".join(f"{HOST}:{port}" for port in self.ports.values())
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": password,
            "ssl.ca.location": str(self.ca),
        }
        command = [found.path, "-b", addresses, *options]
        for name, value in settings.items():
            command += ["-X", f"{name}={value}"]
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | found.environment,
        )
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def produce(self, *values: str) -> None:
        text = "".join(f"{value}\n" for value in values)
        said = self.kcat("-P", "-t", TOPIC, "-X", "acks=all", text=text)
        assert "ERROR" not in said, said

    def consume(self) -> list[str]:
        return sorted(self.kcat("-C", "-t", TOPIC, "-o", "beginning", "-e", "-q").split())


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path)
    with made.cluster:
        yield made


def test_what_was_acknowledged_outlives_nodes(secured: Secured) -> None:
    cluster = secured.cluster
    assert create(cluster.node(1).client, TOPIC, [1, 2, 3], [2, 3, 1], [3, 1, 2]) == 0
    cluster.wait_healthy(TOPIC)
    secured.produce("one", "two")
    cluster.node(1).kill9()
    secured.produce("three")
    cluster.heal()
    for node in cluster.nodes.values():
        node.kill9()
    cluster.heal()  # none has metadata to ask when they log in to each other
    secured.produce("four")
    assert secured.consume() == ["four", "one", "three", "two"]
    refused = secured.kcat("-L", "-m", "5", password="guessed")
    assert "SASL authentication error" in refused and "guessed" not in refused
    for node in cluster.nodes.values():
        assert "secret" not in node.log_text()
