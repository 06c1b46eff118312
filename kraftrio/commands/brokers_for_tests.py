"""`kraftrio test-broker`: brokers for the tests of programs in any language.

Called by: `root`.
"""

from __future__ import annotations

import os
import select
import stat
import sys

import click

from kraftrio.testing.cluster import KafkaCluster

_PARENT_CHECK_S = 0.2


@click.command(
    "test-broker",
    epilog="Example: kraftrio test-broker --set auto.create.topics.enable=false",
)
@click.option(
    "--brokers",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many brokers the cluster has.",
)
@click.option(
    "--data",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Where the files go; without it everything is in memory.",
)
@click.option(
    "--start",
    metavar="PATH",
    type=click.Path(),
    help="Begin with a saved snapshot, or a log directory of Apache Kafka.",
)
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set a property of every broker (may be repeated).",
)
def test_broker(
    brokers: int, folder: str | None, start: str | None, settings: tuple[str, ...]
) -> None:
    """Run brokers for a test, on free ports, until the test ends.

    The first line on standard output is what clients take as bootstrap.servers. The brokers end
    when standard input does, or when the process that started them has ended.
    """
    config: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--set {setting!r}: expected NAME=VALUE")
        config[name.strip()] = value
    parent = os.getppid()
    try:
        cluster = KafkaCluster(brokers, config=config, folder=folder, start=start).start()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    try:
        click.echo(cluster.bootstrap_servers)
        _wait_unwanted(parent)
    finally:
        cluster.stop()


def _wait_unwanted(parent: int) -> None:
    """Wait until standard input ends, or the process that started this one is gone.

    Where standard input is neither a pipe, a socket nor a terminal (/dev/null has ended from the
    start) it says nothing.
    """
    mode = os.fstat(sys.stdin.fileno()).st_mode
    watched = [sys.stdin] if not stat.S_ISREG(mode) and not _is_null(mode) else []
    while os.getppid() == parent:
        readable, _, _ = select.select(watched, [], [], _PARENT_CHECK_S)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            return


def _is_null(mode: int) -> bool:
    return stat.S_ISCHR(mode) and not sys.stdin.isatty()
