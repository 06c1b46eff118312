"""What a node says of itself while real clients use it: pushed metrics, slow requests."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import GetTelemetrySubscriptionsRequest
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.conformance.broker_process import KIND, Broker
from tests.conformance.cases.calls import batch_of, produce
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.clients.install import python_client
from tests.conformance.cluster_calls import create, spare, wait_served
from tests.conformance.cluster_process import Cluster
from tests.conformance.test_prometheus import some_ports

CLIENT_METRICS = 16
DEADLINE_S = 30.0

pytestmark = pytest.mark.skipif(KIND != "kraftrio", reason="of our own metrics and log")


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def asks_for_metrics(client: RawClient) -> bool:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16))
    return bool(client.call(request).requested_metrics)


def test_a_client_of_librdkafka_pushes_its_metrics(tmp_path: Path) -> None:
    """As soon as it is asked to (KIP-714); they are shown beside the broker's own."""
    confluent_kafka = python_client("confluent_kafka")
    (port,) = some_ports(1)
    with Broker(tmp_path / "broker", metrics_listener=f"127.0.0.1:{port}") as broker:
        configs = [
            IncrementalAlterableConfig(name=name, config_operation=0, value=value)
            for name, value in (("metrics", "*"), ("interval.ms", "500"))
        ]
        resource = IncrementalAlterConfigsResource(
            resource_type=CLIENT_METRICS, resource_name="everybody", configs=configs
        )
        with RawClient(broker.address) as client:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            assert client.call(request).responses[0].error_code == 0
            # A client that asks before the broker knows of it asks again after five minutes.
            wait_for("the broker asks clients for metrics", lambda: asks_for_metrics(client))
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "client.id": "my-app", "log_level": 0}
        )

        def is_shown() -> bool:
            producer.produce("topic", b"x" * 100)
            producer.poll(0.1)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                text = page.read().decode()
            return bool(
                re.search(r'^kafka_client_producer_\w+\{client_id="my-app",.*\} \d', text, re.M)
            )

        wait_for("its metrics are shown", is_shown)
        assert producer.flush(10) == 0


def test_a_slow_request_names_the_replica_it_waited_for(tmp_path: Path) -> None:
    """A follower that hangs holds up acks=all until it leaves the ISR, or the time is up."""
    with Cluster(tmp_path / "cluster", slow_request_ms=300) as cluster:
        leader, follower, _ = spare(cluster)
        assert create(cluster.node(leader).client, "topic", [leader, follower]) == 0
        wait_served(cluster, "topic")
        cluster.wait_healthy("topic")
        with cluster.node(leader).client() as client:
            cluster.node(follower).pause()
            answer = produce(client, "topic", batch_of(b"value"))
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        cluster.node(follower).resume()
        log = cluster.node(leader).log_path

        def lines() -> list[str]:
            return [line for line in log.read_text().splitlines() if "slow request" in line]

        wait_for("the line is there", lambda: any("api=Produce" in line for line in lines()))
        (line,) = [line for line in lines() if "api=Produce" in line]
        assert f'why="replication of topic-0 to {follower}"' in line
        fields = dict(re.findall(r"(\w+)_ms=(\d+)", line))
        assert int(fields["remote"]) >= 300 > int(fields["local"])
        cluster.wait_healthy("topic")
