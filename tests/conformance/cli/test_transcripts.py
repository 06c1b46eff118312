"""Each command as people and scripts meet it: on terminals, narrow and wide, and in a pipe.

TEST_BROKER=apache plays the same transcripts against Apache Kafka.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kraftrio.clients.cli.access.commands import acl, quota, user
from kraftrio.clients.cli.cluster.commands import describe, health, quorum, unregister
from kraftrio.clients.cli.cluster.reassign import reassign
from kraftrio.clients.cli.configs.commands import config
from kraftrio.clients.cli.doctor.commands import doctor
from kraftrio.clients.cli.groups.commands import group
from kraftrio.clients.cli.perf.commands import perf
from kraftrio.clients.cli.records.commands import consume, produce
from kraftrio.clients.cli.topics.commands import topic
from kraftrio.clients.cli.transactions.commands import transaction
from kraftrio.clients.console.command import console
from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.cli.transcripts import play, read_steps

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))

# Tested where brokers have what they are about: an authorizer, a broker that is gone for good, a
# transaction that hangs.
ELSEWHERE = {"acl allow", "acl deny", "acl list", "acl remove"}
ELSEWHERE |= {"cluster unregister", "reassign cancel", "transaction abort"}

# Every command that uses a cluster, by its first words.
COMMANDS = {
    "acl": acl,
    "cluster describe": describe,
    "cluster health": health,
    "cluster quorum": quorum,
    "cluster unregister": unregister,
    "config": config,
    "console": console,
    "consume": consume,
    "doctor": doctor,
    "group": group,
    "perf": perf,
    "produce": produce,
    "quota": quota,
    "reassign": reassign,
    "topic": topic,
    "transaction": transaction,
    "user": user,
}

_numbers = itertools.count(1)


def paths(words: str, command: click.Command) -> Iterator[str]:
    """Yield the words of a command, or of all commands of a group."""
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from paths(f"{words} {name}", found)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with nothing but what transcripts made, since some of them list everything."""
    started = start_broker(tmp_path_factory.mktemp("broker"))
    yield started
    started.close()


@pytest.mark.timeout(600)  # dozens of commands, each of which starts an interpreter
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, bootstrap: str) -> None:
    play(path, bootstrap, f"{os.getpid() % 100_000:05}{next(_numbers):03}")


@pytest.mark.parametrize(
    "words", [path for words, found in COMMANDS.items() for path in paths(words, found)]
)
def test_each_command_has_a_transcript(words: str) -> None:
    steps = [step for path in TRANSCRIPTS for step in read_steps(path)]
    found = [step for step in steps if step.command.startswith(words)]
    assert words in ELSEWHERE or any(not step.status for step in found)
