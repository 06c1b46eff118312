"""The command line: `kraftrio start`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from kraftrio import __version__

EXIT_USAGE = 2
EXIT_FAILURE = 1

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class _Parser(argparse.ArgumentParser):
    """Tells what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"kraftrio: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kraftrio", description="A Kafka-compatible message broker.")
    parser.add_argument("--version", action="version", version=f"kraftrio {__version__}")
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
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set a property (may be repeated)",
    )
    start.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=str.upper,
        choices=_LOG_LEVELS,
        default="INFO",
        help=f"least level to log: {', '.join(_LOG_LEVELS)} (default INFO)",
    )
    return parser


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """The properties that the options stand for; later options win over earlier ones."""
    from kraftrio.broker.config import ConfigError, parse_host_port

    overrides: dict[str, str] = {}
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set {setting!r}: wanted is NAME=VALUE")
        overrides[name.strip()] = value
    if arguments.data is not None:
        overrides["log.dirs"] = arguments.data
    if arguments.listen is not None:
        host, port = parse_host_port("--listen", arguments.listen)
        shown = f"[{host}]" if ":" in host else host
        overrides["listeners"] = f"PLAINTEXT://{shown}:{port}"
    return overrides


def _start(arguments: argparse.Namespace) -> int:
    from kraftrio.broker.config import BrokerConfig, ConfigError
    from kraftrio.broker.logging_setup import setup_logging

    try:
        config = BrokerConfig.load(arguments.config, _overrides(arguments), os.environ)
    except ConfigError as error:
        print(f"kraftrio: {error}", file=sys.stderr)
        return EXIT_USAGE
    setup_logging(arguments.log_level)

    from kraftrio.broker.node import StartError, run_until_stopped

    try:
        return run_until_stopped(config)
    except StartError as error:
        print(f"kraftrio: {error}", file=sys.stderr)
        return EXIT_FAILURE


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status (argparse exits with 2 by itself)."""
    # Until the node listens to it, an interrupt ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _start(_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
