"""The tree of commands: `main`, which commands there are, where each is, and how each ends.

Rules:
1. A command is imported when it is used. The commands that run nodes (`node`) have a parser of
   their own, which starts without the libraries that the others need: `kraftrio start` waits for
   nothing that it does not use.
2. Exit status: 0 done, 1 refused or failed, 2 used wrongly, 130 interrupted. Complaints are one
   sentence on standard error; only a fault of ours has a traceback.

Called by: `kraftrio.__main__`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraftrio.base.line_output import reserve_standard_descriptors
from kraftrio.commands import node

if TYPE_CHECKING:
    import click

PROGRAM: Final = "kraftrio"
COMPLETION_VARIABLE: Final = "_KRAFTRIO_COMPLETE"

_EXIT_USAGE: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status (a wrong one of `node` exits by itself)."""
    reserve_standard_descriptors()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if node.is_own(arguments):
        return node.main(arguments)
    if not arguments and COMPLETION_VARIABLE not in os.environ:
        message = "the following arguments are required: COMMAND"
        return _complain(f"{message} (see {PROGRAM} --help)", _EXIT_USAGE)
    return _run_tree(arguments)


def _run_tree(arguments: list[str]) -> int:
    from kraftrio.clients.cli.failures import innermost
    from kraftrio.commands.root import root

    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        status = root.main(arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BaseException as error:
        ended = _end(innermost(error))
        if ended is None:
            raise
        return ended


def _end(error: BaseException) -> int | None:
    """Say why a command ended and return its exit status; None: it is a fault of ours."""
    import click

    from kraftrio.clients.cli.failures import EXIT_INTERRUPTED, EXIT_REFUSED, explain

    match error:
        case click.exceptions.NoArgsIsHelpError():
            print(error.format_message(), file=sys.stderr)
            return _EXIT_USAGE
        case click.UsageError():
            return _complain(_usage_sentence(error), error.exit_code)
        case click.ClickException():
            return _complain(error.format_message(), error.exit_code)
        case KeyboardInterrupt() | click.Abort():
            return EXIT_INTERRUPTED
        case BrokenPipeError():
            # The reader has seen enough; what is left must not complain when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_REFUSED
    sentence = explain(error)
    if sentence is None:
        return None
    sys.stdout.flush()
    return _complain(sentence, getattr(error, "status", EXIT_REFUSED))


def _usage_sentence(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else PROGRAM
    message = error.format_message()
    sentence = message[:1].lower() + message[1:].rstrip(".")
    return f"{sentence} (see {path} --help)"


def _complain(sentence: str, status: int) -> int:
    print(f"{PROGRAM}: {' '.join(sentence.split())}", file=sys.stderr)
    return status
