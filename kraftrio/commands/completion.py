"""`kraftrio completion`: what a shell reads to complete commands and options.

Called by: `root`.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_KRAFTRIO_COMPLETE"


@click.command("completion", epilog="Example: kraftrio completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands, options and their values."""
    found = get_completion_class(shell)
    assert found is not None, shell
    root = ctx.find_root()
    click.echo(found(root.command, {}, root.info_name or "kraftrio", _VARIABLE).source())
