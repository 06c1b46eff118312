"""kafka-consumer-groups and kafka-groups: list, describe, reset and delete consumer groups."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.wire.errors import ErrorCode
from tests.conformance.broker_process import GROUP_PROTOCOLS
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    TransactionalProducer,
    wait_for_transactions,
)
from tests.conformance.cases.transactional import wait_for_state as wait_for_state_of
from tests.conformance.java_tools import KafkaTools

TOOL = "kafka-consumer-groups"


@pytest.fixture
def filled(kafka: KafkaTools, unique_topic: Callable[[], str]) -> str:
    """A topic of two partitions with five records in each, "0-0" to "1-4"."""
    topic = kafka.create_topic(unique_topic(), partitions=2)
    for partition in ("0", "1"):
        lines = [f"{partition}-{i}" for i in range(5)]
        key = {"0": "b", "1": "d"}[partition]  # by the hash of Java's default partitioner
        keyed = [f"{key}\t{line}" for line in lines]
        kafka.produce(topic, keyed, "--reader-property", "parse.key=true")
    ends = kafka.run("kafka-get-offsets", "--topic", topic).lines
    assert ends == [f"{topic}:0:5", f"{topic}:1:5"]
    return topic


@pytest.fixture(params=GROUP_PROTOCOLS)
def idle_group(
    request: pytest.FixtureRequest,
    kafka: KafkaTools,
    filled: str,
    unique_group: Callable[[], str],
) -> str:
    """A group of each protocol without members that has consumed all of `filled`."""
    group = unique_group()
    chosen = ["--command-property", f"group.protocol={request.param}", "--from-beginning"]
    kafka.consume(filled, "--group", group, *chosen, count=10)
    wait_for_state(kafka, group, "Empty", 0)
    return group


def offsets_of(kafka: KafkaTools, group: str) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Return what --describe says: (topic, partition) -> (current offset, end offset, lag)."""
    rows = kafka.run(TOOL, "--describe", "--group", group).rows("GROUP")
    columns = ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    return {
        (row["TOPIC"], row["PARTITION"]): tuple(row[column] for column in columns)  # type: ignore[misc]
        for row in rows
    }


def wait_for_state(kafka: KafkaTools, group: str, state: str, members: int) -> dict[str, str]:
    """Describe the group's state until it is as wanted: members heartbeat every 5 s."""
    deadline = time.monotonic() + 60
    while True:
        described = kafka.run(TOOL, "--describe", "--group", group, "--state")
        # A coordinator takes more than one word, so the columns are counted from the end.
        words = described.lines[-1].split() if described.lines else []
        if words[-2:] == [state, str(members)]:
            return dict(zip(("strategy", "state", "members"), words[-3:], strict=True))
        assert time.monotonic() < deadline, described.describe()
        time.sleep(0.1)


def test_describe_idle_group(
    kafka: KafkaTools, filled: str, idle_group: str, request: pytest.FixtureRequest
) -> None:
    """A group without members keeps its offsets, and lag is counted from them.

    The broker's assignor stays with a group of the consumer protocol.
    """
    assert offsets_of(kafka, idle_group) == {
        (filled, "0"): ("5", "5", "0"),
        (filled, "1"): ("5", "5", "0"),
    }
    kafka.produce(filled, ["b\tmore"], "--reader-property", "parse.key=true")
    assert offsets_of(kafka, idle_group)[filled, "0"] == ("5", "6", "1")
    strategy = {"classic": "-", "consumer": "uniform"}[request.node.callspec.params["idle_group"]]
    assert wait_for_state(kafka, idle_group, "Empty", 0)["strategy"] == strategy


def test_describe_beside_an_open_transaction(
    kafka: KafkaTools, bootstrap: str, filled: str, idle_group: str
) -> None:
    """The group's committed offset is shown until the transaction that raises it is committed."""
    with RawClient(bootstrap) as client:
        wait_for_transactions(client)
        producer = TransactionalProducer(client, idle_group).init()
        for commit, offset in ((False, "5"), (True, "3")):
            assert producer.commit_offset(idle_group, filled, 3) == ErrorCode.NONE
            assert offsets_of(kafka, idle_group)[filled, "0"] == ("5", "5", "0")
            producer.end(commit=commit)
            wait_for_state_of(
                client, producer.transactional_id, "CompleteCommit" if commit else "CompleteAbort"
            )
            assert offsets_of(kafka, idle_group)[filled, "0"][0] == offset
    kafka.run(TOOL, "--delete", "--group", idle_group)


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_list_states_and_types(
    kafka: KafkaTools, topic: str, unique_group: Callable[[], str], protocol: str
) -> None:
    """Groups of each protocol are listed with their state and type, by both tools."""
    group = unique_group()
    chosen = ["--command-property", f"group.protocol={protocol}", "--from-beginning"]
    kafka.produce(topic, ["x"])
    kafka.consume(topic, "--group", group, *chosen, count=1)
    assert group in kafka.run(TOOL, "--list").lines
    states = kafka.run(TOOL, "--list", "--state").rows("GROUP")
    assert {"GROUP": group, "STATE": "Empty"} in states
    assert group not in kafka.run(TOOL, "--list", "--state", "Stable").output
    types = kafka.run(TOOL, "--list", "--type").rows("GROUP")
    assert {"GROUP": group, "TYPE": protocol.capitalize()} in types
    rows = kafka.run("kafka-groups", "--list").rows("GROUP")
    wanted = {"GROUP": group, "TYPE": protocol.capitalize(), "PROTOCOL": "consumer"}
    assert wanted in rows


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_describe_active_group(
    kafka: KafkaTools, filled: str, unique_group: Callable[[], str], protocol: str
) -> None:
    """Two members share the partitions, are shown with host and client id, and leave."""
    group = unique_group()
    chosen = ["--topic", filled, "--group", group, "--command-property"]
    chosen += [f"group.protocol={protocol}", "--command-property"]
    first = kafka.start("kafka-console-consumer", *chosen, "client.id=one", "--from-beginning")
    second = kafka.start("kafka-console-consumer", *chosen, "client.id=two", "--from-beginning")
    with first, second:
        state = wait_for_state(kafka, group, "Stable", 2)
        assert state["strategy"] in {"range", "uniform"}
        shown = wait_for_members(kafka, group)
        details = kafka.run(TOOL, "--describe", "--group", group, "--members", "--verbose")
        assert re.findall(rf"{filled}(?::|\()([01])", details.output), details.output
        (listed,) = [
            row
            for row in kafka.run("kafka-groups", "--list", "--group-type", protocol).rows("GROUP")
            if row["GROUP"] == group
        ]
        assert (listed["TYPE"], listed["PROTOCOL"]) == (protocol.capitalize(), "consumer")
        assert sorted(row["CLIENT-ID"] for row in shown) == ["one", "two"]
        assert [row["#PARTITIONS"] for row in shown] == ["1", "1"]
        assert all(row["HOST"] == "/127.0.0.1" for row in shown)
        refused = kafka.run(TOOL, "--group", group, "--delete")
        assert "GroupNotEmptyException" in refused.output
        first.stop()
        second.stop()
    wait_for_state(kafka, group, "Empty", 0)
    assert offsets_of(kafka, group)[filled, "1"] == ("5", "5", "0")


def wait_for_members(kafka: KafkaTools, group: str) -> list[dict[str, str]]:
    """Describe the members until each has a partition, for 20 s at most."""
    deadline = time.monotonic() + 60
    while True:
        described = kafka.run(TOOL, "--describe", "--group", group, "--members")
        rows = described.rows("GROUP")
        if [row["#PARTITIONS"] for row in rows] == ["1", "1"]:
            return rows
        assert time.monotonic() < deadline, described.describe()
        time.sleep(0.1)


def test_missing_group(kafka: KafkaTools, unique_group: Callable[[], str]) -> None:
    """Describing and deleting a group that was never there say so."""
    group = unique_group()
    described = kafka.run(TOOL, "--describe", "--group", group, check=False)
    assert f"Group {group} not found" in described.output
    deleted = kafka.run(TOOL, "--delete", "--group", group, check=False)
    assert "GroupIdNotFoundException" in deleted.output


def reset(kafka: KafkaTools, group: str, *options: str) -> dict[str, str]:
    """Reset offsets and return the new ones by partition."""
    done = kafka.run(TOOL, "--group", group, "--reset-offsets", *options)
    return {row["PARTITION"]: row["NEW-OFFSET"] for row in done.rows("GROUP")}


def test_reset_offsets(kafka: KafkaTools, filled: str, idle_group: str) -> None:
    """Each way to choose the new offsets works, and a dry run changes nothing."""
    whole = ["--topic", filled]
    dry = reset(kafka, idle_group, *whole, "--to-earliest", "--dry-run")
    assert dry == {"0": "0", "1": "0"}
    assert offsets_of(kafka, idle_group)[filled, "0"][0] == "5"
    one = ["--topic", f"{filled}:0"]
    assert reset(kafka, idle_group, *one, "--to-offset", "2", "--execute") == {"0": "2"}
    current = offsets_of(kafka, idle_group)
    assert (current[filled, "0"][0], current[filled, "1"][0]) == ("2", "5")
    shifted = reset(kafka, idle_group, *whole, "--shift-by", "-1", "--execute")
    assert shifted == {"0": "1", "1": "4"}
    assert reset(kafka, idle_group, "--all-topics", "--to-latest", "--execute") == {
        "0": "5",
        "1": "5",
    }
    past = ["--to-datetime", "2001-01-01T00:00:00.000", "--execute"]
    assert reset(kafka, idle_group, *whole, *past) == {"0": "0", "1": "0"}
    future = ["--to-datetime", "2201-01-01T00:00:00.000", "--execute"]
    assert reset(kafka, idle_group, *whole, *future) == {"0": "5", "1": "5"}
    beyond = reset(kafka, idle_group, *whole, "--to-offset", "99", "--execute")
    assert beyond == {"0": "5", "1": "5"}


def test_reset_by_file_and_time(
    kafka: KafkaTools, filled: str, idle_group: str, tmp_path: Path
) -> None:
    """What a dry run exports a file with that sets; durations count back from now."""
    whole = ["--topic", filled]
    asked = [*whole, "--to-offset", "2", "--dry-run", "--export"]
    exported = kafka.run(TOOL, "--group", idle_group, "--reset-offsets", *asked).lines
    wanted = [f'"{filled}",{partition},2' for partition in (0, 1)]
    assert sorted(line for line in exported if filled in line) in (
        wanted,
        [line.replace('"', "") for line in wanted],
    )
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{line}\n" for line in exported if filled in line))
    from_file = ["--from-file", str(file), "--execute"]
    assert reset(kafka, idle_group, *from_file) == {"0": "2", "1": "2"}
    assert reset(kafka, idle_group, *whole, "--to-current", "--execute") == {"0": "2", "1": "2"}
    hour = reset(kafka, idle_group, *whole, "--by-duration", "PT1H", "--execute")
    assert hour == {"0": "0", "1": "0"}
    assert offsets_of(kafka, idle_group)[filled, "0"] == ("0", "5", "5")
    shifted = reset(kafka, idle_group, *whole, "--shift-by", "99", "--execute")
    assert shifted == {"0": "5", "1": "5"}


def test_regular_expressions_are_validated(kafka: KafkaTools) -> None:
    """By the tool itself, with the broker's library."""
    assert "valid" in kafka.run(TOOL, "--validate-regex", "a.*|b").output
    refused = kafka.run(TOOL, "--validate-regex", "(a", check=False)
    assert "missing closing )" in refused.output


def test_consumer_obeys_reset(kafka: KafkaTools, filled: str, idle_group: str) -> None:
    """After a reset the group's next consumer starts there."""
    reset(kafka, idle_group, "--topic", f"{filled}:1", "--to-offset", "3", "--execute")
    assert kafka.consume(filled, "--group", idle_group, count=2) == ["1-3", "1-4"]


def test_delete_offsets_and_group(kafka: KafkaTools, filled: str, idle_group: str) -> None:
    """Offsets of one topic can be deleted, then the group itself; it is gone then."""
    done = kafka.run(TOOL, "--group", idle_group, "--topic", f"{filled}:0", "--delete-offsets")
    assert done.rows("TOPIC") == [{"TOPIC": filled, "PARTITION": "0", "STATUS": "Successful"}]
    assert (filled, "0") not in offsets_of(kafka, idle_group)
    assert offsets_of(kafka, idle_group)[filled, "1"] == ("5", "5", "0")
    deleted = kafka.run(TOOL, "--group", idle_group, "--delete")
    assert f"('{idle_group}') was successful" in deleted.output
    assert idle_group not in kafka.run(TOOL, "--list").lines


def test_offsets_of_a_deleted_topic_go(kafka: KafkaTools, filled: str, idle_group: str) -> None:
    """Deleting a topic deletes what groups had committed for it."""
    kafka.run("kafka-topics", "--delete", "--topic", filled)
    deadline = time.monotonic() + 20
    while idle_group in kafka.run(TOOL, "--list").lines and offsets_of(kafka, idle_group):
        assert time.monotonic() < deadline, "the offsets are still there"
        time.sleep(0.2)
