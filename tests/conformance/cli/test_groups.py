"""`kraftrio group` while members of every kind are at work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.cli.terminal import DEADLINE_S, command_line, run
from tests.conformance.cli.test_records import running


@pytest.fixture
def topic(bootstrap: str, unique_topic: Callable[[], str]) -> str:
    """A topic of the test's own, with a record in each of two partitions."""
    name = unique_topic()
    run("topic", "create", name, "--partitions", "2", bootstrap=bootstrap)
    typed = b'{"value":"a","partition":0}\n{"value":"b","partition":1}\n'
    run("produce", name, "--format", "json", bootstrap=bootstrap, typed=typed)
    return name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_with_what_they_read(
    topic: str, bootstrap: str, tmp_path: Path, protocol: str
) -> None:
    """Who reads what, and that a group with members is neither moved nor deleted."""
    group = f"group-{topic}"
    properties = tmp_path / "consumer.properties"
    properties.write_text(f"group.protocol={protocol}\nclient.id=the-client\n")
    follow = ("consume", topic, "--group", group, "--from-beginning", "--follow")
    with running(bootstrap, *follow, "--config", str(properties)) as member:
        assert member.stdout is not None
        assert {member.stdout.readline(), member.stdout.readline()} == {b"a\n", b"b\n"}
        found = run("group", "describe", group, "--json", bootstrap=bootstrap)
        rows = [json.loads(line) for line in found.output.splitlines()]
        assert [row["partition"] for row in rows] == [0, 1]
        assert {row["client_id"] for row in rows} == {"the-client"}
        assert {row["state"] for row in rows} == {"Stable"}
        reset = ("group", "reset", group, "--topic", topic, "--to-earliest", "--execute")
        ended = run(*reset, bootstrap=bootstrap)
        assert ended.status == 1
        assert "has members, so nothing was changed: stop them first" in ended.errors
        ended = run("group", "delete", group, bootstrap=bootstrap)
        assert ended.status == 1
        member.send_signal(signal.SIGINT)
        assert member.wait(DEADLINE_S) == 0
    assert run(*reset, bootstrap=bootstrap).status == 0
    again = run("consume", topic, "--group", group, bootstrap=bootstrap)
    assert sorted(again.output.split()) == ["a", "b"]


def test_watching_a_group(topic: str, bootstrap: str) -> None:
    """The same again and again, until an interrupt; scripts get a sample each time."""
    group = f"group-{topic}"
    run("consume", topic, "--group", group, "--from-beginning", bootstrap=bootstrap)
    with running(bootstrap, "group", "describe", group, "--watch", "100ms", "--json") as watch:
        assert watch.stdout is not None
        samples = [json.loads(watch.stdout.readline()) for _ in range(6)]
        assert {sample["lag"] for sample in samples} == {0}
        watch.send_signal(signal.SIGINT)
        assert watch.wait(DEADLINE_S) == 0


def test_reset_from_a_file(topic: str, bootstrap: str, tmp_path: Path) -> None:
    group = f"group-{topic}"
    table = tmp_path / "offsets.csv"
    table.write_text(f"{topic},1,1\n")
    reset = ("group", "reset", group, "--from-file", str(table), "--execute", "--json")
    (row,) = run(*reset, bootstrap=bootstrap).output.splitlines()
    assert json.loads(row)["new_offset"] == 1
    table.write_text("nonsense\n")
    ended = run(*reset, bootstrap=bootstrap)
    assert ended.status == 1
    assert "line 1 is not topic,partition,offset: 'nonsense'" in ended.errors
    table.write_text("\n")
    assert "it has no line of topic,partition,offset" in run(*reset, bootstrap=bootstrap).errors
    table.write_text(f"{topic},1,0\n")
    ended = run(*reset, "--topic", topic, bootstrap=bootstrap)
    assert ended.status == 2
    assert "--from-file takes no topics" in ended.errors


def test_a_pipe_of_commands(topic: str, bootstrap: str) -> None:
    """What one command prints the next one reads."""
    environment = {**os.environ, "KRAFTRIO_BOOTSTRAP_SERVER": bootstrap}
    with subprocess.Popen(
        command_line("consume", topic, "--json"), stdout=subprocess.PIPE, env=environment
    ) as consume:
        produce = subprocess.run(
            command_line("produce", topic, "--format", "json", "--json"),
            stdin=consume.stdout,
            capture_output=True,
            env=environment,
            timeout=DEADLINE_S,
            check=True,
        )
    assert json.loads(produce.stdout)["records"] == 2
