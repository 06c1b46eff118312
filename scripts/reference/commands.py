"""The page of commands, from the tree of `kraftrio`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from inspect import cleandoc

import click

from kraftrio.commands.root import ENTRIES, root
from reference.tables import code, section, table

_COMMON = 10  # an option of that many commands, with the same words, is described once
_HELP = "--help"


def page() -> Iterator[str]:
    """Every command with its options and an example."""
    yield "# Commands"
    yield ""
    yield "What `kraftrio COMMAND --help` says. Made from the commands."
    found = list(walk("kraftrio", root))
    counts = Counter(text for _, command in found for _, text in options(command))
    common = {text for text, count in counts.items() if count >= _COMMON}
    shown = dict(pair for _, command in found for pair in options(command))
    yield from section(
        "Options of most commands",
        "The exit status is 0, 1 (refused, failed), 2 (used wrongly) or 130 (interrupted).",
    )
    yield from table(("option", "meaning"), sorted(x for x in shown.items() if x[1] in common))
    for path, command in found:
        yield from section(path, cleandoc(command.help or summary(path)))
        usage = " ".join(command.collect_usage_pieces(click.Context(command)))
        yield f"    {path} {usage}".rstrip()
        own = [(name, text) for name, text in options(command) if text not in common]
        if own:
            yield ""
            yield from table(("option", "meaning"), own)
        if command.epilog:
            word, _, example = command.epilog.partition(": ")
            yield ""
            yield f"{word}: {code(example)}"


def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a tree that can be called, with their words."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from walk(f"{path} {name}", found)


def options(command: click.Command) -> Iterator[tuple[str, str]]:
    """Yield what each option looks like, and what it means."""
    context = click.Context(command)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and not parameter.hidden and record is not None:
            name, text = record
            yield code(name), text


def summary(path: str) -> str:
    """Return what the list of commands says of one that runs nodes, which has its own parser."""
    return ENTRIES[path.split()[1]].summary
