"""The tree of commands: each is there, with help and an example, and a node's start is quick."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.commands.cluster import cluster
from kraftrio.commands.completion import completion
from kraftrio.commands.node import is_own
from kraftrio.commands.root import root
from kraftrio.commands.tree import main

# The libraries that only commands of the tree use.
_OF_THE_TREE = ("click", "rich")


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands below a group with their paths."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


ALL = dict(commands(root, "kraftrio"))


@pytest.mark.parametrize("path", [path for path, found in ALL.items() if found.callback])
def test_commands_have_help_and_an_example(path: str) -> None:
    command = ALL[path]
    if isinstance(command, LazyGroup):
        return
    assert command.help, path
    assert command.epilog, path
    assert command.epilog.startswith(("Example: kraftrio ", "Examples: kraftrio ")), path
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.name}"


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("start", True),
        ("start --data x", True),
        ("start --help", True),
        ("cluster", True),
        ("cluster --nodes 3", True),
        ("cluster --help", False),
        ("cluster health", False),
        ("recover-quorum", True),
        ("topic list", False),
        ("", False),
    ],
)
def test_which_commands_run_nodes(line: str, own: bool) -> None:
    assert is_own(line.split()) is own


def test_nodes_are_started_without_the_libraries_of_the_tree() -> None:
    """They would take longer to be imported than the parser that a node needs."""
    program = (
        "import sys\n"
        "from kraftrio.__main__ import main\n"
        "try:\n    main(['start', '--nonsense'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {_OF_THE_TREE} if name in sys.modules])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"


def test_options_of_nodes_are_completed() -> None:
    """They come from the parser that reads them."""
    options = {name for each in cluster.params for name in each.opts}
    assert {"--nodes", "--data", "--base-port", "--set", "--log-level"} <= options
    (level,) = [each for each in cluster.params if each.opts == ["--log-level"]]
    assert isinstance(level.type, click.Choice)


def test_wrong_commands_name_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topci", "list"]) == 2
    assert capsys.readouterr().err == (
        "kraftrio: there is no command kraftrio topci; did you mean 'topic'?"
        " (see kraftrio --help)\n"
    )


def test_wrong_options_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "--intern"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "--internal" in captured.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.epilog
    assert main(["completion", shell]) == 0
    assert "_KRAFTRIO_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("kraftrio top", ["topic"]),
        ("kraftrio topic del", ["delete", "delete-records"]),
        ("kraftrio consume --from-b", ["--from-beginning"]),
        ("kraftrio start --log-l", ["--log-level"]),
        ("kraftrio start --log-level W", ["WARNING"]),
        ("kraftrio cluster --n", ["--nodes"]),
        ("kraftrio cluster hea", ["health"]),
    ],
)
def test_words_are_completed(words: str, completed: list[str]) -> None:
    """As bash asks for it."""
    environment = {
        **os.environ,
        "_KRAFTRIO_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "kraftrio"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split(",")[1] for line in ended.stdout.splitlines()] == completed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kraftrio 0.")
