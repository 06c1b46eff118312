"""Why a command did not do what it was asked for, as one sentence and an exit status.

Owns `CommandError`, the exit statuses, and `explain`, which says what an expected error means to
whoever typed the command. What `explain` does not know is a fault of ours, and keeps its traceback.

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
        sentence: what is the matter, and what to do next.
        status: the exit status.
    """

    def __init__(self, sentence: str, *, status: int = EXIT_REFUSED) -> None:
        super().__init__(sentence)
        self.status = status


def innermost(error: BaseException) -> BaseException:
    """Return what alone happened within nurseries; several things stay together."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def explain(error: BaseException) -> str | None:
    """Return the sentence of an error that can be expected; None: it is a fault of ours."""
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
