"""The commands that run nodes as the tree shows them: in `kraftrio --help`, and for completion.

They run through `node`, whose parser says here which options there are.

Called by: `root` and `cluster`.
"""

from __future__ import annotations

import argparse
from typing import Any

import click

from kraftrio.commands import node

_FILES = {"FILE": click.Path(dir_okay=False), "DIR": click.Path(file_okay=False)}


def options_of(name: str) -> list[click.Parameter]:
    """Return the options of a command of `node`."""
    (commands,) = (
        action
        for action in node.parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    found: argparse.ArgumentParser = commands.choices[name]
    return [
        _option(action) for action in found._actions if not isinstance(action, argparse._HelpAction)
    ]


def _option(action: argparse.Action) -> click.Option:
    kind: click.ParamType[Any] | None = _FILES.get(str(action.metavar))
    if action.choices is not None:
        kind = click.Choice(list(action.choices))
    return click.Option(
        list(action.option_strings),
        type=kind,
        is_flag=action.nargs == 0,
        help=action.help,
        metavar=action.metavar if isinstance(action.metavar, str) else None,
    )


start = click.Command("start", params=options_of("start"))
recover_quorum = click.Command("recover-quorum", params=options_of("recover-quorum"))
