"""`kraftrio produce` and `consume` where more happens than a line goes in and comes out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.cli.terminal import DEADLINE_S, command_line, run

LINES = b"".join(b"%d %s\n" % (number, b"x" * (number % 97)) for number in range(200_000))


@pytest.fixture
def topic(bootstrap: str, unique_topic: Callable[[], str]) -> str:
    """A topic of the test's own, with three partitions."""
    name = unique_topic()
    assert run("topic", "create", name, "--partitions", "3", bootstrap=bootstrap).status == 0
    return name


@contextlib.contextmanager
def running(bootstrap: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside the test; it is killed unless it has ended."""
    process = subprocess.Popen(
        command_line(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KRAFTRIO_BOOTSTRAP_SERVER": bootstrap},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # what was typed for nobody
                stream.close()


def test_many_lines_through_pipes(topic: str, bootstrap: str) -> None:
    """Nothing is lost, doubled or, within a partition, out of order."""
    sent = run("produce", topic, bootstrap=bootstrap, typed=LINES)
    assert sent.errors.startswith("200000 records ")
    found = run("consume", topic, bootstrap=bootstrap).output.encode()
    assert sorted(found.splitlines()) == sorted(LINES.splitlines())
    for partition in range(3):
        part = run("consume", topic, "--partition", str(partition), bootstrap=bootstrap)
        numbers = [int(line.split()[0]) for line in part.output.splitlines()]
        assert numbers == sorted(numbers)


def test_a_file_from_one_cluster_to_the_other(topic: str, bootstrap: str, tmp_path: Path) -> None:
    """What `consume --json` prints `produce --format json` takes: keys, headers, times and all."""
    first = '{"key":"a","value":"1","headers":[["h","x"]],"timestamp":5,"partition":2}\n'
    second = '{"key_base64":"/w==","value":null,"timestamp":6,"partition":1}\n'
    typed = (first + second).encode()
    assert not run("produce", topic, "--format", "json", bootstrap=bootstrap, typed=typed).status
    printed = run("consume", topic, "--json", bootstrap=bootstrap).output
    path = tmp_path / "records"
    path.write_text(printed)
    assert run("produce", topic, "--format", "json", "--file", str(path), bootstrap=bootstrap)
    again = run("consume", topic, "--json", bootstrap=bootstrap).output.splitlines()
    contents = [line[line.index('"timestamp"') :] for line in again]
    assert len(contents) == 4
    assert len(set(contents)) == 2


def test_following_until_an_interrupt(topic: str, bootstrap: str) -> None:
    """What was printed is committed, and nothing else is: the next member goes on there."""
    group = f"group-{topic}"
    arguments = ("consume", topic, "--group", group, "--from-beginning", "--follow")
    with running(bootstrap, *arguments) as process:
        assert process.stdout is not None
        run("produce", topic, bootstrap=bootstrap, typed=b"one\ntwo\n")
        assert {process.stdout.readline(), process.stdout.readline()} == {b"one\n", b"two\n"}
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    run("produce", topic, bootstrap=bootstrap, typed=b"three\n")
    assert run("consume", topic, "--group", group, bootstrap=bootstrap).output == "three\n"


def test_only_what_comes_from_now_on(topic: str, bootstrap: str) -> None:
    """That is how --follow begins without a group."""
    run("produce", topic, bootstrap=bootstrap, typed=b"before\n")
    with running(bootstrap, "consume", topic, "--follow") as process:
        assert process.stdout is not None
        # It has begun once it prints something that was sent again and again.
        with running(bootstrap, "produce", topic, "--rate", "20") as producer:
            assert producer.stdin is not None
            producer.stdin.write(b"after\n" * 1_000)
            producer.stdin.flush()
            assert process.stdout.readline() == b"after\n"


def test_the_last_records_of_all_partitions(topic: str, bootstrap: str) -> None:
    lines = "".join(
        f'{{"value":"{number}","partition":{number % 3},"timestamp":{number}}}\n'
        for number in range(30)
    )
    run("produce", topic, "--format", "json", bootstrap=bootstrap, typed=lines.encode())
    found = run("consume", topic, "--tail", "4", bootstrap=bootstrap)
    assert found.output.split() == ["26", "27", "28", "29"]


def test_a_reader_that_has_seen_enough(topic: str, bootstrap: str) -> None:
    """The command ends without a message, as other programs in a pipe do."""
    run("produce", topic, bootstrap=bootstrap, typed=LINES)
    with running(bootstrap, "consume", topic) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 1
        assert process.stderr.read() == b""


def test_the_rate_is_kept(topic: str, bootstrap: str) -> None:
    began_at = time.monotonic()
    ended = run("produce", topic, "--rate", "50", bootstrap=bootstrap, typed=b"x\n" * 100)
    assert ended.status == 0
    assert time.monotonic() - began_at >= 1.9


def test_a_broker_that_refuses(topic: str, bootstrap: str) -> None:
    """The records that it takes are counted; for others the reason is printed."""
    run("topic", "alter", topic, "--set", "max.message.bytes=1000", bootstrap=bootstrap)
    typed = b'{"value":"small","partition":0}\n{"value":"%s","partition":0}\n' % (b"x" * 5_000)
    ended = run("produce", topic, "--format", "json", bootstrap=bootstrap, typed=typed)
    assert ended.status == 1
    assert ended.errors.startswith("kraftrio: ")
    assert ended.errors.count("\n") == 1
    count = len(run("consume", topic, bootstrap=bootstrap).output.splitlines())
    assert f"; {count} record" in ended.errors


def test_a_typed_line_is_taken_at_once(topic: str, bootstrap: str) -> None:
    with running(bootstrap, "produce", topic) as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"typed\n")
        producer.stdin.flush()
        found = run("consume", topic, "--from-beginning", "--count", "1", bootstrap=bootstrap)
        assert found.output == "typed\n"
        producer.stdin.close()
        assert producer.wait(DEADLINE_S) == 0
