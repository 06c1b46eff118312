"""kafka-share-groups, kafka-groups and kafka-configs on share groups: listed, described, their
offsets reset and deleted, groups deleted. The console's share consumer makes the groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.java_tools import Completed, KafkaTools

TOOL = "kafka-share-groups"
DEADLINE_S = 30.0


@pytest.fixture
def filled(kafka: KafkaTools, unique_topic: Callable[[], str]) -> str:
    """A topic of two partitions, with ten records in the first."""
    topic = kafka.create_topic(unique_topic(), partitions=2)
    kafka.produce(
        topic, [f"b\t{index}" for index in range(10)], "--reader-property", "parse.key=true"
    )
    assert kafka.run("kafka-get-offsets", "--topic", topic).lines == [
        f"{topic}:0:10",
        f"{topic}:1:0",
    ]
    return topic


@pytest.fixture
def idle_group(kafka: KafkaTools, filled: str, unique_group: Callable[[], str]) -> str:
    """A group without members that has consumed all of `filled`."""
    group = unique_group()
    start_at_earliest(kafka, group)
    done = kafka.run(
        "kafka-console-share-consumer", "--topic", filled, "--group", group,
        "--max-messages", "10", "--timeout-ms", "30000",
    )  # fmt: skip
    assert sorted(map(int, done.stdout.split())) == list(range(10)), done.describe()
    wait_for_offsets(kafka, group, {"0": ("10", "0"), "1": ("0", "0")}, {"0": ("0", "0")})
    return group


def start_at_earliest(kafka: KafkaTools, group: str) -> None:
    """Have a group begin at the start of its topics."""
    kafka.run(
        "kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip


def describe(kafka: KafkaTools, group: str, *options: str) -> Completed:
    return kafka.run(TOOL, "--describe", "--group", group, *options)


def offsets_of(kafka: KafkaTools, group: str) -> dict[str, tuple[str, str]]:
    """What --describe says: partition -> (start offset, lag)."""
    rows = describe(kafka, group, "--offsets").rows("GROUP")
    return {row["PARTITION"]: (row["START-OFFSET"], row["LAG"]) for row in rows}


def wait_for_offsets(kafka: KafkaTools, group: str, *wanted: dict[str, tuple[str, str]]) -> None:
    """Describe until the offsets are one of those wanted, or have them at least."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = offsets_of(kafka, group)
        if any(one.items() <= found.items() for one in wanted):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def reset(kafka: KafkaTools, group: str, *options: str) -> dict[str, str]:
    """Reset offsets: partition -> new offset, as the tool says."""
    rows = kafka.run(TOOL, "--reset-offsets", "--group", group, *options).rows("GROUP")
    return {row["PARTITION"]: row["NEW-OFFSET"] for row in rows}


def test_an_idle_group_is_listed_and_described(kafka: KafkaTools, idle_group: str) -> None:
    """By both tools, with its state; it has no members."""
    assert idle_group in kafka.run(TOOL, "--list").lines
    listed = {"GROUP": idle_group, "STATE": "Empty"}
    assert listed in kafka.run(TOOL, "--list", "--state").rows("GROUP")
    assert idle_group not in kafka.run(TOOL, "--list", "--state", "Stable").output
    for options in ((), ("--share",), ("--group-type", "share")):
        rows = kafka.run("kafka-groups", "--list", *options).rows("GROUP")
        assert {"GROUP": idle_group, "TYPE": "Share", "PROTOCOL": "share"} in rows
    assert idle_group not in kafka.run("kafka-groups", "--list", "--consumer").output
    state = describe(kafka, idle_group, "--state", "--verbose").lines
    assert state[1].split()[-4] == "Empty" and state[1].split()[-1] == "0"
    members = describe(kafka, idle_group, "--members")
    assert f"Share group '{idle_group}' has no active members." in members.output


def test_members_of_a_group_are_described(
    kafka: KafkaTools, filled: str, unique_group: Callable[[], str]
) -> None:
    """With what they have; their group can neither be reset nor deleted."""
    group = unique_group()
    consumer = kafka.start("kafka-console-share-consumer", "--topic", filled, "--group", group)
    with consumer:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            described = kafka.run(
                TOOL, "--describe", "--group", group, "--members", "--verbose", check=False
            )
            rows = described.rows("GROUP")
            if rows and f"{filled}:0,1" in described.output:
                break
            assert time.monotonic() < deadline, described.describe()
            time.sleep(0.2)
        assert rows[0]["HOST"] == "/127.0.0.1"
        assert describe(kafka, group, "--state").lines[1].split()[-2:] == ["Stable", "1"]
        refused = kafka.run(
            TOOL, "--reset-offsets", "--group", group, "--topic", filled, "--to-earliest",
            "--execute", check=False,
        )  # fmt: skip
        assert f"Share group '{group}' is not empty." in refused.output
        deleted = kafka.run(TOOL, "--delete", "--group", group, check=False)
        assert f"Share group '{group}' is not EMPTY." in deleted.output


def test_offsets_are_reset_in_every_form(kafka: KafkaTools, filled: str, idle_group: str) -> None:
    """--to-earliest, --to-latest, --to-datetime; topics, partitions, all; also dry runs."""
    topic = ("--topic", filled)
    before = offsets_of(kafka, idle_group)
    assert reset(kafka, idle_group, *topic, "--to-latest", "--dry-run") == {"0": "10", "1": "0"}
    assert offsets_of(kafka, idle_group) == before
    reset(kafka, idle_group, *topic, "--to-latest", "--execute")
    assert offsets_of(kafka, idle_group) == {"0": ("10", "0"), "1": ("0", "0")}
    reset(kafka, idle_group, "--topic", f"{filled}:0", "--to-earliest", "--execute")
    assert offsets_of(kafka, idle_group)["0"] == ("0", "10")
    reset(
        kafka, idle_group, "--all-topics", "--to-datetime", "2099-01-01T00:00:00.000", "--execute"
    )
    assert offsets_of(kafka, idle_group) == {"0": ("10", "0"), "1": ("0", "0")}
    moved = reset(
        kafka, idle_group, "--all-topics", "--to-datetime", "2020-01-01T00:00:00.000", "--execute"
    )
    assert moved == {"0": "0", "1": "0"}
    again = kafka.run(
        "kafka-console-share-consumer", "--topic", filled, "--group", idle_group,
        "--max-messages", "10", "--timeout-ms", "30000",
    )  # fmt: skip
    assert sorted(map(int, again.stdout.split())) == list(range(10)), again.describe()


def test_offsets_of_a_new_group_are_reset(
    kafka: KafkaTools, filled: str, unique_group: Callable[[], str]
) -> None:
    """Which makes the group; it begins there."""
    group = unique_group()
    reset(kafka, group, "--topic", filled, "--to-earliest", "--execute")
    assert offsets_of(kafka, group) == {"0": ("0", "10"), "1": ("0", "0")}
    kafka.run(TOOL, "--delete", "--group", group)


def test_offsets_are_deleted(kafka: KafkaTools, filled: str, idle_group: str) -> None:
    """Topic by topic; for a topic that does not exist the tool says so."""
    done = kafka.run(TOOL, "--delete-offsets", "--group", idle_group, "--topic", filled)
    assert {"TOPIC": filled, "STATUS": "Successful"} in done.rows("TOPIC")
    assert offsets_of(kafka, idle_group) == {}
    again = kafka.run(
        TOOL, "--delete-offsets", "--group", idle_group, "--topic", filled, check=False
    )
    assert "There is no offset information to delete." in again.output


def test_groups_are_deleted(kafka: KafkaTools, filled: str, idle_group: str) -> None:
    """With their states: a group of that name begins again."""
    deleted = kafka.run(TOOL, "--delete", "--group", idle_group)
    assert f"Deletion of requested share groups ('{idle_group}') was successful." in deleted.output
    assert idle_group not in kafka.run(TOOL, "--list").lines
    missing = kafka.run(TOOL, "--delete", "--group", idle_group, check=False)
    assert f"Group '{idle_group}' is not a share group." in missing.output
    again = kafka.run(
        "kafka-console-share-consumer", "--topic", filled, "--group", idle_group,
        "--max-messages", "10", "--timeout-ms", "30000",
    )  # fmt: skip
    assert sorted(map(int, again.stdout.split())) == list(range(10)), again.describe()
