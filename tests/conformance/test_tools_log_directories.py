"""kafka-reassign-partitions with log directories: replicas move between those of a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.conformance.broker_process import Broker
from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.integration.wire_client import wait_until

TOOL = "kafka-reassign-partitions"


def plan(path: Path, topic: str, directory: str, partition: int = 0) -> str:
    """Write a plan that moves one replica into a log directory."""
    move = {
        "topic": topic,
        "partition": partition,
        "replicas": [1],
        "log_dirs": [directory],
    }
    path.write_text(json.dumps({"version": 1, "partitions": [move]}))
    return str(path)


def directories(kafka: KafkaTools, topic: str) -> dict[str, list[tuple[bool, int]]]:
    """By log directory: is it a future replica, and how far behind?"""
    output = kafka.run("kafka-log-dirs", "--describe", "--topic-list", topic).output
    described = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    return {
        one["logDir"]: [
            (replica["isFuture"], replica["offsetLag"]) for replica in one["partitions"]
        ]
        for one in described["brokers"][0]["logDirs"]
    }


def test_a_replica_moves_under_load_and_through_a_kill(
    make_broker: Callable[..., Broker], tmp_path: Path, tool_runner: ToolRunner
) -> None:
    """Throttled at first; killed while it moves; then freed, it ends with every record."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    broker = make_broker(log_dirs=",".join(paths), file_delete_delay_ms=500)
    kafka = KafkaTools(broker.address, tool_runner)
    kafka.create_topic("moves")
    values = [f"{number:06}-" + "x" * 1000 for number in range(2000)]
    kafka.produce("moves", values)
    (source,) = [path for path, replicas in directories(kafka, "moves").items() if replicas]
    (target,) = [path for path in paths if path != source]
    options = ["--reassignment-json-file", plan(tmp_path / "plan.json", "moves", target)]
    started = kafka.run(
        TOOL, *options, "--execute", "--replica-alter-log-dirs-throttle", "300000"
    ).output
    assert "Successfully started" in started
    status = kafka.run(TOOL, *options, "--verify", "--preserve-throttles").output
    assert "is still in progress" in status
    (future,) = directories(kafka, "moves")[target]
    assert future[0] and future[1] > 0
    broker.kill9()
    broker.restart()
    kafka.produce("moves", ["last"])
    freed = ["--entity-type", "brokers", "--entity-name", "1", "--alter", "--delete-config"]
    kafka.run("kafka-configs", *freed, "replica.alter.log.dirs.io.max.bytes.per.second")

    def moved() -> bool:
        found = directories(kafka, "moves")
        return found[target] == [(False, 0)] and not found[source]

    wait_until(moved, "the replica lies in its new directory", 30)
    assert "completed successfully" in kafka.run(TOOL, *options, "--verify").output
    assert kafka.consume("moves", count=2001) == [*values, "last"]
    assert (Path(target) / "moves-0").is_dir()
    broker.restart()
    assert kafka.consume("moves", count=2001) == [*values, "last"]


def test_a_wrong_directory_is_named(
    make_broker: Callable[..., Broker], tmp_path: Path, tool_runner: ToolRunner
) -> None:
    broker = make_broker(log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    kafka = KafkaTools(broker.address, tool_runner)
    kafka.create_topic("stays")
    path = plan(tmp_path / "plan.json", "stays", f"{tmp_path}/three")
    refused = kafka.run(TOOL, "--reassignment-json-file", path, "--execute", check=False)
    assert refused.exit_code == 1
    assert "LogDirNotFoundException" in refused.output
