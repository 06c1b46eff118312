"""The commands that run nodes: `kraftrio start`, `kraftrio cluster`, `kraftrio recover-quorum`.

They have a parser of the standard library, and import what they need when they need it: what other
commands use would only delay the start of a node. `node_options` shows their options to the tree.

Called by: `tree`.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from kraftrio.broker.node.local.secure_setup.secure_setup import SecureSetup

EXIT_USAGE = 2
EXIT_FAILURE = 1

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def _complain(text: str) -> None:
    """Print why the command ends on standard error, if that can be written to."""
    from kraftrio.base.line_output import STANDARD_ERROR, LineOutput

    LineOutput(STANDARD_ERROR).write(f"kraftrio: {text}\n")


class _OneLineParser(argparse.ArgumentParser):
    """Reports what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"kraftrio: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the three commands."""
    parser = _OneLineParser(prog="kraftrio")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser(
        "start",
        help="run one node in the foreground",
        description="Run one node in the foreground. Without options: broker and controller in one"
        " process on localhost:9092, data in ./kraftrio-data. Prints one line 'kraftrio ready"
        " HOST:PORT node=ID data=DIR' on standard output when clients can connect.",
    )
    start.add_argument("--config", metavar="FILE", help="a server.properties file")
    start.add_argument("--data", metavar="DIR", help="data directory (log.dirs)")
    start.add_argument(
        "--listen", metavar="HOST:PORT", help="client listener; port 0 picks a free one"
    )
    start.add_argument(
        "--add-scram",
        metavar="USER",
        action="append",
        default=[],
        help="a first user of a new cluster: SCRAM-SHA-256=[name=NAME,password=PASSWORD] (may be"
        " repeated); give it to each controller",
    )
    _add_common_options(start)
    start.set_defaults(run=_start)
    cluster = commands.add_parser(
        "cluster",
        help="run several nodes of one cluster in the foreground",
        description="Run a cluster on this machine in the foreground: each node is broker and"
        " controller in a process of its own, with its data in DIR/node-ID. Prints one line"
        " 'kraftrio ready HOST:PORT node=ID pid=PID data=DIR/node-ID' on standard output for each"
        " node. 'kraftrio start --config DIR/node-ID/server.properties' runs a node alone.",
    )
    cluster.add_argument(
        "--nodes", metavar="N", type=int, help="number of nodes (default 3, or as many as in DIR)"
    )
    cluster.add_argument(
        "--data",
        metavar="DIR",
        default="kraftrio-cluster",
        help="directory of the nodes' directories (default ./kraftrio-cluster)",
    )
    cluster.add_argument(
        "--base-port",
        metavar="PORT",
        type=int,
        help="node i listens on PORT+2(i-1) and its controller one above; 0 picks free ports"
        " (default 9092); an existing cluster keeps its ports",
    )
    cluster.add_argument(
        "--host", default="localhost", help="name or address to listen on (default localhost)"
    )
    cluster.add_argument(
        "--secure",
        action="store_true",
        help="use TLS and passwords, with certificates and an administrator made at the first"
        " start; node i has three ports from PORT+3(i-1) on",
    )
    _add_common_options(cluster)
    cluster.set_defaults(run=_cluster)
    _add_recover_quorum(commands)
    return parser


def _add_recover_quorum(commands: argparse._SubParsersAction[_OneLineParser]) -> None:
    recover = commands.add_parser(
        "recover-quorum",
        help="let a controller that lost its disk vote, when a majority is lost for good",
        description="Show what is left of a stopped controller and, with --accept-loss, let it"
        " vote again although no other voter can confirm what it had promised. Only for a quorum"
        " that lost the disks of a majority: one that has a majority takes the others back by"
        " itself.",
    )
    recover.add_argument("--config", metavar="FILE", help="the node's server.properties file")
    recover.add_argument("--data", metavar="DIR", help="data directory (log.dirs)")
    recover.add_argument(
        "--accept-loss", action="store_true", help="do it; without this option nothing is changed"
    )
    _add_common_options(recover)
    recover.set_defaults(run=_recover_quorum, listen=None)


def _add_common_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set a property (may be repeated)",
    )
    command.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=str.upper,
        choices=_LOG_LEVELS,
        default="INFO",
        help=f"least level to log: {', '.join(_LOG_LEVELS)} (default INFO)",
    )
    command.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="log lines for people, or JSON objects for collectors (default text)",
    )


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    """The properties of --set; later ones win over earlier ones."""
    from kraftrio.broker.config.config import PropertyError

    settings: dict[str, str] = {}
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise PropertyError(f"--set {setting!r}: expected NAME=VALUE")
        settings[name.strip()] = value
    return settings


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """The properties that the options stand for; later options win over earlier ones."""
    from kraftrio.broker.config.attributes import address_text
    from kraftrio.broker.config.config import parse_host_port

    overrides = _settings(arguments)
    if arguments.data is not None:
        overrides["log.dirs"] = arguments.data
    if arguments.listen is not None:
        host, port = parse_host_port("--listen", arguments.listen)
        overrides["listeners"] = f"PLAINTEXT://{address_text(host, port)}"
    return overrides


def _start(arguments: argparse.Namespace) -> int:
    from kraftrio.base.live_objects import collect_less_often, making_permanent_objects
    from kraftrio.base.logging_setup import setup_logging
    from kraftrio.broker.config.config import BrokerConfig, PropertyError

    try:
        config = BrokerConfig.load(arguments.config, _overrides(arguments), os.environ)
    except PropertyError as error:
        _complain(str(error))
        return EXIT_USAGE
    setup_logging(arguments.log_level, log_format=arguments.log_format)

    collect_less_often()
    with making_permanent_objects():
        from kraftrio.base.start_errors import StartError
        from kraftrio.broker.node.node import run_until_stopped
        from kraftrio.broker.node.security.first_users import FirstUserError, first_credentials

    try:
        users = [*arguments.add_scram, *_users_of(config.kraftrio_first_users_file)]
        credentials = first_credentials(users, os.urandom)
    except FirstUserError as error:
        _complain(f"the first users: {error}")
        return EXIT_USAGE
    except (OSError, UnicodeDecodeError) as error:
        _complain(f"cannot read kraftrio.first.users.file: {error}")
        return EXIT_USAGE
    try:
        companion = None
        if config.console_listener is not None:
            from kraftrio.commands.node_console import make_console

            companion = make_console(config, config.console_listener)
        return run_until_stopped(config, credentials, companion)
    except StartError as error:
        _complain(str(error))
        return EXIT_FAILURE


def _users_of(file: str) -> list[str]:
    if not file:
        return []
    from pathlib import Path

    return [line.strip() for line in Path(file).read_text().splitlines() if line.strip()]


def _recover_quorum(arguments: argparse.Namespace) -> int:
    from kraftrio.base.start_errors import StartError
    from kraftrio.broker.config.config import BrokerConfig, PropertyError
    from kraftrio.broker.log.files import OsFileSystem
    from kraftrio.broker.node.quorum_recovery import recover_quorum

    try:
        config = BrokerConfig.load(arguments.config, _overrides(arguments), os.environ)
    except PropertyError as error:
        _complain(str(error))
        return EXIT_USAGE
    try:
        is_proven, lines = recover_quorum(OsFileSystem(), config, accept_loss=arguments.accept_loss)
    except StartError as error:
        _complain(str(error))
        return EXIT_FAILURE
    print("\n".join(lines))
    return 0 if is_proven else EXIT_FAILURE


def _cluster(arguments: argparse.Namespace) -> int:
    import random

    import trio

    from kraftrio.base.line_output import STANDARD_ERROR, STANDARD_OUTPUT, LineOutput
    from kraftrio.broker.config.config import PropertyError
    from kraftrio.broker.log.files import OsFileSystem
    from kraftrio.broker.node.local.cluster_layout import ClusterError, plan_cluster
    from kraftrio.broker.node.local.local_cluster import run_cluster
    from kraftrio.broker.node.local.secure_setup.secure_setup import (
        SecureSetupError,
        what_clients_need,
    )

    try:
        settings = _settings(arguments)
        nodes = plan_cluster(
            OsFileSystem(),
            arguments.data,
            random.SystemRandom(),
            nodes=arguments.nodes,
            base_port=arguments.base_port,
            host=arguments.host.removeprefix("[").removesuffix("]"),
            settings=settings,
            secure=_make_secure if arguments.secure else None,
        )
    except (PropertyError, ClusterError, SecureSetupError) as error:
        _complain(str(error))
        return EXIT_USAGE
    options = ["--log-level", arguments.log_level, "--log-format", arguments.log_format]
    for name, value in settings.items():
        options += ["--set", f"{name}={value}"]

    output, errors = LineOutput(STANDARD_OUTPUT), LineOutput(STANDARD_ERROR)
    try:
        if arguments.secure:
            for line in what_clients_need(os.path.abspath(arguments.data)):
                output.write(f"{line}\n")
        return trio.run(
            run_cluster,
            nodes,
            options,
            lambda line: output.write(f"{line}\n"),
            lambda line: errors.write(f"{line}\n"),
        )
    finally:
        output.close()
        errors.close()


def _make_secure(setup: SecureSetup) -> None:
    from datetime import UTC, datetime

    from kraftrio.broker.node.local.secure_setup.secure_setup import new_password, write_setup

    write_setup(setup.files(datetime.now(UTC), new_password()))


def is_own(arguments: Sequence[str]) -> bool:
    """Return whether a command line is for this module: `cluster` has commands of the tree, too."""
    match arguments:
        case ["start" | "recover-quorum", *_] | ["cluster"]:
            return True
        case ["cluster", first, *_]:
            return first.startswith("-") and first not in ("-h", "--help")
    return False


def main(arguments: Sequence[str]) -> int:
    """Run a command line that is for this module; return the exit status.

    Raises:
        SystemExit: it is wrong.
    """
    # Until the node listens to it, an interrupt ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parsed = parser().parse_args(arguments)
    return int(parsed.run(parsed))
