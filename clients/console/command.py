"""`kraftrio console`: a cluster as pages in a browser.

Called by: the root of the command line.
"""

from __future__ import annotations

import os
from functools import partial

import click
import trio

from kraftrio.clients.cli.connect import find_target
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.interrupts import until_interrupted
from kraftrio.clients.cli.session import target_options
from kraftrio.clients.console.extra import import_server
from kraftrio.clients.console.settings import DEFAULT_TIMEOUT_S, ConsoleSettings

DEFAULT_LISTEN = "localhost:8080"


@click.command(
    "console", epilog="Example: kraftrio console --bootstrap-server kafka.example.com:9092"
)
@target_options
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=DEFAULT_LISTEN,
    help=f"Where browsers find it (default {DEFAULT_LISTEN}; port 0 picks a free one). It has no"
    " login: anybody who reaches it sees all records.",
)
@click.option("--writable", is_flag=True, help="Let visitors write records and reset groups.")
@click.option(
    "--allow-host",
    "host_names",
    metavar="NAME",
    multiple=True,
    help="A name that browsers may call it by, besides localhost and addresses; repeatable.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=DEFAULT_TIMEOUT_S,
    help=f"How long one request to the cluster may take (default {DEFAULT_TIMEOUT_S:g}).",
)
def console(
    bootstrap_server: str | None,
    config_file: str | None,
    listen: str,
    writable: bool,
    host_names: tuple[str, ...],
    timeout_s: float,
) -> None:
    """Show a cluster in a browser: health, topics, records, groups, quorum, settings."""
    host, port = parse_listen(listen)
    target = find_target(bootstrap_server, config_file, os.environ)
    settings = ConsoleSettings(target, writable, frozenset({host, *host_names}), timeout_s)
    settings.check()
    trio.run(partial(_run, settings, host, port))


def parse_listen(text: str) -> tuple[str, int]:
    """Split HOST:PORT.

    Raises:
        click.UsageError: the text has another form.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise click.UsageError(f"--listen {text!r}: expected HOST:PORT, such as {DEFAULT_LISTEN}")
    return host, int(port)


async def _run(settings: ConsoleSettings, host: str, port: int) -> None:
    server = import_server()
    try:
        sock = server.listen(host, port)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {host}:{port}: {error.strerror}; --listen HOST:PORT chooses another"
        ) from None
    mode = "" if settings.is_writable else ", read-only"
    url = server.url_of(host, sock)
    click.echo(f"kraftrio console {url} of {settings.target.servers}{mode}; Ctrl-C ends it")
    async with until_interrupted():
        await server.serve(settings, sock)
