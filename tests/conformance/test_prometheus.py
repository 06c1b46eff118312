"""A real Prometheus scrapes three nodes: its figures are what the load sent, and an alert fires
when a node is killed.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftrio.broker.metrics.families import FAMILIES
from kraftrio.broker.node.local.cluster_layout import free_ports
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.conformance.broker_process import KIND
from tests.conformance.cases.calls import batch_of, fetch, produce, records_in
from tests.conformance.clients.install import prometheus
from tests.conformance.cluster_calls import create, wait_served
from tests.conformance.cluster_process import Cluster

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus-alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
TOPIC, GROUP = "load", "readers"
PARTITIONS, BATCHES, RECORDS, COMMITTED = 3, 40, 50, 300
DEADLINE_S = 60.0

pytestmark = pytest.mark.skipif(KIND != "kraftrio", reason="of our own metrics")


def some_ports(count: int) -> list[int]:
    return free_ports(count, "127.0.0.1", random.SystemRandom(), 1)


class Prometheus:
    """A server that scrapes the nodes, with our rules, whose waits are made short."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        self.program = prometheus()
        (self.port,) = some_ports(1)
        self.folder = folder
        rules = RULES.read_text()
        for wait in ("10m", "5m", "1m", "30s"):
            rules = rules.replace(f"for: {wait}\n", "for: 1s\n")
        (folder / "rules.yml").write_text(rules)
        shown = json.dumps(targets)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{folder}/rules.yml]\n"
            "scrape_configs:\n"
            f"  - {{job_name: kraftrio, static_configs: [{{targets: {shown}}}]}}\n"
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        command = [
            self.program,
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        with (self.folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float:
        """The one value of an expression; -1: there is none."""
        result = self.ask("query", query=expression)["result"]
        return float(result[0]["value"][1]) if result else -1.0

    def wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                if holds():
                    return
            except OSError:
                pass  # it starts
            log = (self.folder / "log").read_text()
            assert time.monotonic() < deadline, f"{what}\n{log}"
            time.sleep(0.25)

    def firing(self) -> set[str]:
        alerts = self.ask("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Cluster, Prometheus]]:
    """Three nodes of the test's own, each with a metrics listener, and the server that scrapes."""
    cluster = Cluster(tmp_path / "cluster")
    targets = []
    for node, port in zip(cluster.brokers, some_ports(3), strict=True):
        node.config["metrics.listener"] = f"127.0.0.1:{port}"
        targets.append(f"127.0.0.1:{port}")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = Prometheus(folder, targets)
    with cluster, server.running():
        server.wait_for("all are scraped", lambda: server.value("sum(up)") == 3)
        yield cluster, server


def load(cluster: Cluster) -> tuple[int, int]:
    """Produce, fetch and commit; return the bytes of the batches, and of what was fetched."""
    assignments = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    assert create(cluster.node(cluster.controller()).client, TOPIC, *assignments) == 0
    for index in range(PARTITIONS):
        wait_served(cluster, TOPIC, index)
    cluster.wait_healthy(TOPIC)
    sent = fetched = 0
    for index in range(PARTITIONS):
        with cluster.node(cluster.leader(TOPIC, index)).client() as client:
            for _ in range(BATCHES):
                batch = batch_of(*[b"x" * 100] * RECORDS)
                sent += len(batch)
                assert produce(client, TOPIC, batch, index).error_code == 0
            answer = fetch(client, TOPIC, 0, index, max_bytes=1 << 24)
            assert len(records_in(answer.records)) == BATCHES * RECORDS
            fetched += len(answer.records or b"")
    with cluster.node(cluster.coordinator(GROUP)).client() as client:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=COMMITTED)
            for index in range(PARTITIONS)
        ]
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
        client.call(OffsetCommitRequest(group_id=GROUP, topics=topics), 8)
    return sent, fetched


def test_three_nodes_agree_with_their_load_and_a_dead_one_is_noticed(
    watched: tuple[Cluster, Prometheus],
) -> None:
    cluster, server = watched
    sent, fetched = load(cluster)
    records = PARTITIONS * BATCHES * RECORDS
    of_topic = f'{{topic="{TOPIC}"}}'
    expected = {
        f"sum(kraftrio_topic_records_in_total{of_topic})": records,
        f"sum(kraftrio_topic_bytes_in_total{of_topic})": sent,
        f"sum(kraftrio_topic_records_out_total{of_topic})": records,
        f"sum(kraftrio_topic_bytes_out_total{of_topic})": fetched,
        f"sum(kraftrio_topic_replication_bytes_out_total{of_topic})": 2 * sent,
        f"sum(kraftrio_topic_replication_bytes_in_total{of_topic})": 2 * sent,
        'sum(kraftrio_request_seconds_count{api="Produce"})': PARTITIONS * BATCHES,
        'sum(kraftrio_request_seconds_count{api="OffsetCommit"})': 1,
        f'sum(kraftrio_group_lag_records{{group="{GROUP}"}})': records - PARTITIONS * COMMITTED,
        "sum(kraftrio_under_replicated_partitions)": 0,
        "sum(kraftrio_active_controller)": 1,
        "max(kraftrio_cluster_brokers)": 3,
    }

    def agrees() -> bool:
        return all(
            abs(server.value(expression) - wanted) <= 0.01 * wanted
            for expression, wanted in expected.items()
        )

    try:
        server.wait_for("the figures agree", agrees)
    except AssertionError:
        assert {one: server.value(one) for one in expected} == expected
    for query in dashboard_queries():
        if "label_values" not in query and query != "prometheus":
            assert server.ask("query", query=as_grafana(query))["resultType"] == "vector", query
    assert server.firing() == set()
    cluster.node(cluster.others(cluster.controller())[0]).kill9()
    wanted = {"KraftrioUnderReplicatedPartitions", "KraftrioNodeDown"}
    server.wait_for("a node that is gone is noticed", lambda: wanted <= server.firing())
    cluster.heal()
    server.wait_for("it is back", lambda: not wanted & server.firing())


def dashboard_queries() -> list[str]:
    """What the panels and the variables of the dashboard ask for."""
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return queries + [each["query"] for each in dashboard["templating"]["list"]]


def as_grafana(query: str) -> str:
    """Fill in the variables as Grafana does."""
    return query.replace("$job", "kraftrio").replace("$__rate_interval", "1m")


def test_rules_and_dashboard_ask_for_metrics_that_exist() -> None:
    """Every expression does, and groups by labels that one of its metrics has."""
    labels = {family.name: {*family.labels, "le"} for family in FAMILIES}
    queries = dashboard_queries() + RULES.read_text().split("- alert:")
    asked = set()
    for query in queries:
        names = {
            re.sub(r"_(bucket|count|sum)$", "", name)
            for name in re.findall(r"\bkraftrio_\w+", query)
        }
        assert names <= labels.keys(), query
        known = {"job", "instance", *(label for name in names for label in labels[name])}
        chosen = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", query)
        grouped = re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", query)
        shown = re.findall(r"\$labels\.(\w+)", query)
        used = {*chosen, *shown, *(each.strip() for one in grouped for each in one.split(","))}
        assert not names or used <= known, query
        asked |= names
    assert len(asked) > 20
