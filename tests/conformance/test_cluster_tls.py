"""Three nodes over TLS: all is as in plaintext, and no node joins without a trusted certificate."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.cluster_load import (
    ConfluentLoad,
    check_log,
    check_replicas,
    wait_for_more,
)
from tests.conformance.cluster_process import ClusterNode
from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.conformance.tls_cluster import TlsCluster
from tests.security.certificates import Authority, trust_store

PARTITIONS = 3
TOPIC = "over-tls"


@pytest.fixture(scope="module")
def tls_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    with TlsCluster(tmp_path_factory.mktemp("tls-cluster")) as cluster:
        yield cluster


@pytest.fixture
def topic(tls_cluster: TlsCluster, tool_runner: ToolRunner, request: pytest.FixtureRequest) -> str:
    """A topic on all nodes, each of which leads a partition."""
    name = f"{TOPIC}-{request.node.name.removeprefix('test_')}"
    KafkaTools(tls_cluster.bootstrap, tool_runner).create_topic(name, partitions=PARTITIONS)
    tls_cluster.wait_healthy(name)
    return name


@pytest.fixture
def load(tls_cluster: TlsCluster, topic: str) -> Iterator[ConfluentLoad]:
    """A producer at work over TLS, with a certificate of its own."""
    with ConfluentLoad(
        tls_cluster.tls_bootstrap, topic, PARTITIONS, 400, **tls_cluster.librdkafka
    ) as made:
        wait_for_more(tls_cluster, [made.acknowledged], 50)
        yield made


def finish(cluster: TlsCluster, topic: str, load: ConfluentLoad) -> None:
    wait_for_more(cluster, [load.acknowledged], 200)
    load.stop()
    cluster.heal()
    assert not load.acknowledged.failures
    check_log(cluster, topic, PARTITIONS, load.acknowledged)
    check_replicas(cluster, topic, PARTITIONS)


def test_kills(tls_cluster: TlsCluster, topic: str, load: ConfluentLoad) -> None:
    """kill -9 of a leader, then of the active controller: nothing is lost, doubled or turned."""
    leader = tls_cluster.leader(topic)
    tls_cluster.node(leader).kill9()
    assert tls_cluster.leader(topic) != leader
    wait_for_more(tls_cluster, [load.acknowledged], 200)
    tls_cluster.heal()
    controller = tls_cluster.controller()
    tls_cluster.node(controller).kill9()
    assert tls_cluster.controller() != controller
    wait_for_more(tls_cluster, [load.acknowledged], 200)
    tls_cluster.heal()
    finish(tls_cluster, topic, load)


def test_certificates_are_renewed_under_load(
    tls_cluster: TlsCluster, topic: str, load: ConfluentLoad
) -> None:
    """On all nodes, one after the other: no client meets an error, nor one that connects then."""
    before = {node.node_id: tls_cluster.certificate_of(node) for node in tls_cluster.brokers}
    seen: dict[int, list[int]] = defaultdict(list)
    errors: list[str] = []
    stopping = threading.Event()

    def keep_connecting(node: ClusterNode) -> None:
        while not stopping.is_set():
            try:
                seen[node.node_id].append(tls_cluster.certificate_of(node))
            except OSError as error:
                errors.append(repr(error))

    threads = [threading.Thread(target=keep_connecting, args=[n]) for n in tls_cluster.brokers]
    for thread in threads:
        thread.start()
    try:
        for node in tls_cluster.brokers:
            tls_cluster.renew(node.node_id)
        deadline = time.monotonic() + 30
        while any(one[-1:] in ([], [before[at]]) for at, one in seen.items()):
            assert time.monotonic() < deadline, "a node goes on with its old certificate"
            time.sleep(0.1)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert not errors
    for node_id, numbers in seen.items():
        assert len(set(numbers)) == 2 and numbers[0] == before[node_id]
    finish(tls_cluster, topic, load)
    text = "".join(node.log_text() for node in tls_cluster.brokers)
    assert text.count("certificates renewed listener=SSL") == 3


def test_a_broker_with_a_wrong_certificate_cannot_join(
    tls_cluster: TlsCluster, topic: str, tmp_path: Path
) -> None:
    """It trusts the others, but they do not trust it."""
    outsider = tls_cluster.brokers[-1]
    stranger = Authority("Nobody's CA")
    outsider.terminate()
    right = dict(outsider.config)
    outsider.config |= tls_cluster.renew(outsider.node_id, stranger.server("node-3"))
    outsider.config |= trust_store(tmp_path, tls_cluster.authority, stranger, name="both")
    begin = len(outsider.log_text())
    outsider.write_properties()
    outsider.launch()
    others = [node for node in tls_cluster.brokers if node is not outsider]
    deadline = time.monotonic() + 30
    refusal = "connection refused client=127.0.0.1 listener=CONTROLLER reason=TLS: the certificate"
    while not any(refusal in node.log_text() for node in others):
        assert time.monotonic() < deadline, "nobody says that it was refused"
        time.sleep(0.2)
    time.sleep(3)
    assert "started node" not in outsider.log_text()[begin:]
    found = tls_cluster.topics(topic, node_id=others[0].node_id)[0]
    assert all(outsider.node_id not in one.isr_nodes for one in found.partitions)
    lines = [line for node in others for line in node.log_text().splitlines() if refusal in line]
    assert len(lines) < 40, "each attempt is logged"
    outsider.kill9()
    outsider.config = right
    tls_cluster.renew(outsider.node_id)
    tls_cluster.heal()


def test_without_a_certificate_nobody_gets_in(tls_cluster: TlsCluster, topic: str) -> None:
    """The client goes on trying, and each broker says once why it is refused."""
    settings = dict(tls_cluster.librdkafka)
    del settings["ssl_certificate_location"], settings["ssl_key_location"]
    with ConfluentLoad(tls_cluster.tls_bootstrap, topic, PARTITIONS, 50, **settings) as stranger:
        time.sleep(3)
        assert not stranger.acknowledged.count
    text = "".join(node.log_text() for node in tls_cluster.brokers)
    assert "listener=SSL reason=TLS: peer did not return a certificate" in text
