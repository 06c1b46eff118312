"""Java's clients log in again before their sessions end (KIP-368), and keep their connections."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.integration.sasl_broker import SaslBroker, scram

RECORDS, PER_SECOND = 600, 100
SESSION_MS = 2000


def test_a_producer_works_on_over_the_ends_of_its_sessions(
    tool_runner: ToolRunner, tmp_path: Path
) -> None:
    settings = scram("alice", "alice-secret", "SCRAM-SHA-512")
    file = tmp_path / "client.properties"
    properties = {"security.protocol": "SASL_PLAINTEXT", **settings}
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with SaslBroker(tmp_path / "broker", connections_max_reauth_ms=SESSION_MS) as broker:
        tools = KafkaTools(broker.address, tool_runner)
        tools.run(
            "kafka-topics", "--command-config", str(file), "--create", "--topic", "t",
            "--partitions", "1",
        )  # fmt: skip
        done = tools.run(
            "kafka-producer-perf-test", "--topic", "t", "--num-records", str(RECORDS),
            "--throughput", str(PER_SECOND), "--record-size", "10", "--print-metrics",
            "--command-config", str(file),
        )  # fmt: skip
        assert f"{RECORDS} records sent" in done.stdout, done.describe()
        found = re.findall(r"successful-reauthentication-total:\{.*?\}\s*:\s*([\d.]+)", done.stdout)
        assert found and float(found[0]) >= 2, done.describe()
        failed = re.findall(r"failed-reauthentication-total:\{.*?\}\s*:\s*([\d.]+)", done.stdout)
        assert set(failed) == {"0.000"}, done.describe()
        assert "refused" not in broker.log_text()
