"""`kraftrio security init`: keys, certificates, an administrator and property files for a node.

Called by: `root`.
"""

from __future__ import annotations

import posixpath
from datetime import UTC, datetime

import click

from kraftrio.broker.node.local.secure_node import secure_node_files
from kraftrio.broker.node.local.secure_setup.new_files import NewFile
from kraftrio.broker.node.local.secure_setup.secure_setup import (
    ADMINISTRATOR,
    SecureSetupError,
    new_password,
    write_setup,
)
from kraftrio.clients.cli.lazy_group import LazyGroup

_DEFAULT_PORT = 9092
_LAST_PORT = 65_533  # two more follow it


@click.group("security", cls=LazyGroup)
def security() -> None:
    """Make a node secure before its first start."""


@security.command(
    "init", epilog="Example: kraftrio security init --data kafka --host kafka.example.com"
)
@click.option(
    "--data",
    "directory",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False),
    help="Where the files go; the node's data will be in DIR/data.",
)
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name or address that clients reach the node by (may be repeated; the first is"
    " advertised). Without it the node is for this machine alone.",
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(1, _LAST_PORT),
    default=_DEFAULT_PORT,
    show_default=True,
    help="Where clients with a password connect; the controller's port and the one for clients"
    " with a certificate follow it.",
)
def init(directory: str, hosts: tuple[str, ...], port: int) -> None:
    """Make a certificate authority, certificates, an administrator and property files.

    Nothing is overwritten. The files that only their owner may read hold keys and passwords.
    """
    if any(not host.strip() for host in hosts):
        raise click.UsageError("--host must be a name or an address")
    directory = posixpath.abspath(directory)
    names = [host.strip().removeprefix("[").removesuffix("]") for host in hosts]
    try:
        files = secure_node_files(
            directory, names, port, now=datetime.now(UTC), password=new_password()
        )
        write_setup(files)
    except SecureSetupError as error:
        raise click.ClickException(str(error)) from error
    for line in summary(files):
        click.echo(line)


def summary(files: list[NewFile]) -> list[str]:
    """Say in words what was written."""
    lines = [f"{file.path}: {file.purpose}" for file in files]
    return [
        *lines,
        f"The user {ADMINISTRATOR} may do everything; others what ACLs allow them.",
    ]
