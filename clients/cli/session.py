"""A command that uses a cluster: its options, its clients, and how it ends.

Owns `cluster_command`, which makes an `async` function a command with the options that all have,
and `Session`, which such a function gets. Rules:
1. Before a command does anything a broker must answer; if none does in time, the error names the
   addresses, the time, the reason, and the command that examines it.
2. Each command uses one `Admin`, opened by `Session.admin`; it makes producers and consumers
   itself, with `Session.settings`.

Called by: the commands.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import Results
from kraftrio.clients.cli.connect import BOOTSTRAP_VARIABLE, TargetCluster, find_target
from kraftrio.clients.cli.failures import CommandError, one_line
from kraftrio.clients.cli.output import Output
from kraftrio.clients.config import AdminConfig, ClientConfig
from kraftrio.clients.errors import NetworkError, TimedOutError

CLIENT_ID = "kraftrio-cli"

_NOWHERE = logging.NullHandler()
_CONNECT_TIMEOUT_S = 5.0
_DEFAULT_TIMEOUT_S = 30.0

K = TypeVar("K")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Session:
    """What a command works with.

    Attributes:
        timeout_s: how long one call may take.
    """

    target: TargetCluster
    output: Output
    timeout_s: float = _DEFAULT_TIMEOUT_S

    def settings(self, cls: type[ClientConfig]) -> dict[str, Any]:
        """Return the keyword arguments for a client class; the command may add to them."""
        return {"client_id": CLIENT_ID, **self.target.settings(cls)}

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        """Open an admin client that has reached the cluster.

        Raises:
            CommandError: no broker answers.
        """
        settings = self.settings(AdminConfig)
        settings.setdefault("default_api_timeout_ms", round(self.timeout_s * 1000))
        async with Admin(self.target.servers, **settings) as admin:
            await self._reach(admin)
            yield admin

    async def _reach(self, admin: Admin) -> None:
        timeout_s = min(self.timeout_s, _CONNECT_TIMEOUT_S)
        began_at = trio.current_time()
        try:
            await admin.describe_cluster(timeout_ms=round(timeout_s * 1000))
        except (NetworkError, TimedOutError) as error:
            waited_s = trio.current_time() - began_at
            raise CommandError(
                f"no broker answered at {self.target.servers} within {waited_s:.1f} s"
                f" ({one_line(str(error))}); {doctor_hint(self.target)}"
            ) from None


def doctor_hint(target: TargetCluster) -> str:
    """Return the words that point to `kraftrio doctor` for a cluster that cannot be used."""
    return f"'kraftrio doctor --bootstrap-server {target.servers}' looks into it"


def target_options(callback: F) -> F:
    """Give a command's callback the options that say which cluster to use."""
    config = click.option(
        "--config", "config_file", metavar="FILE", help="A Java client's properties file."
    )
    servers = click.option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help=f"Brokers to begin with (default: {BOOTSTRAP_VARIABLE}, else localhost:9092).",
    )
    return servers(config(callback))


def cluster_command(run: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a command's callback, with the common options, of a function that takes a session."""

    @target_options
    @click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        default=_DEFAULT_TIMEOUT_S,
        help="How long one request to the cluster may take (default 30).",
    )
    @click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
    @functools.wraps(run)
    def callback(
        bootstrap_server: str | None,
        config_file: str | None,
        timeout_s: float,
        as_json: bool,
        **options: Any,
    ) -> None:
        target = find_target(bootstrap_server, config_file, os.environ)
        session = Session(target, Output(as_json=as_json), timeout_s)
        # A command reports in one sentence what its clients would log as warnings.
        logging.getLogger("kraftrio.clients").addHandler(_NOWHERE)
        trio.run(functools.partial(run, session, **options))

    return callback


def report(
    results: Results[K, T], done: Callable[[K, T], None], name: Callable[[K], str] = str
) -> None:
    """Report what was done; then fail with all that was not.

    Args:
        done: reports one item that was done.

    Raises:
        CommandError, KafkaClientError: something was not done.
    """
    failed = results.errors
    for item in results:
        if item not in failed:
            done(item, results[item])
    if failed:
        raise CommandError("; ".join(f"{name(item)}: {error}" for item, error in failed.items()))


def confirm(question: str, yes: bool) -> None:
    """Ask at a terminal for the confirmation of what cannot be undone.

    Raises:
        CommandError: the answer is no.
    """
    if yes or not sys.stdin.isatty():
        return
    if not click.confirm(question, err=True):
        raise CommandError("nothing was changed")


def pairs(settings: Iterable[str], option: str = "--set") -> dict[str, str]:
    """Split NAME=VALUE options.

    Raises:
        click.UsageError: one has another form.
    """
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {setting!r}: expected NAME=VALUE")
        found[name.strip()] = value
    return found
