"""Groups of commands that are imported when they are used, and suggest the nearest name.

Owns `LazyGroup`. A table names each command with its module and what `--help` says of it, so that
neither `kraftrio --help` nor the completion of a name imports them all.

Called by: the groups of commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from kraftrio.clients.arguments.nearest import did_you_mean


class Entry(NamedTuple):
    """Where a command is, as "module:name", and what it is for in a few words."""

    place: str
    summary: str


class LazyGroup(click.Group):
    """A group of commands from a table; the order of `--help` is the table's."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry] | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._entries = dict(entries or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._entries, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = entry.place.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command), entry.place
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"there is no command {ctx.command_path} {name}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, entry.summary) for name, entry in self._entries.items()]
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=80)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
