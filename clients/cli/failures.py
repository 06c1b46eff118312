"""Why a command failed, as one sentence and an exit status.

Owns `CommandError`, the exit statuses, and `explain`, which says what an expected error means to
the user who typed the command. An error that `explain` does not know is a bug, and keeps its
traceback.

Called by: the commands, and the root of the command line.
"""

from __future__ import annotations

from typing import Final

from kraftrio.wire.errors import KafkaError

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


class CommandError(Exception):
    """A command that could not be done.

    Args:
        sentence: what is wrong, and what to do next.
        status: the exit status.
    """

    def __init__(self, sentence: str, *, status: int = EXIT_REFUSED) -> None:
        super().__init__(sentence)
        self.status = status


def innermost(error: BaseException) -> BaseException:
    """Return the only exception in nested groups; a group of several is returned as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def explain(error: BaseException) -> str | None:
    """Return the sentence for an error that can be expected; None: it is a bug."""
    if isinstance(error, CommandError):
        return one_line(str(error))
    if isinstance(error, KafkaError):
        sentence = one_line(str(error))
        notes = getattr(error, "__notes__", ())
        return "; ".join([sentence, *map(one_line, notes)])
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return None


def one_line(text: str) -> str:
    """Return a text in one line."""
    return " ".join(text.split())
