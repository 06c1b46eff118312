"""What is wrong with a file of a log directory, for the operator who decides what to do. Pure.

Called by: the checks of this room, which make them, and the command line, which shows them.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.wire.errors import KafkaError


class Finding(NamedTuple):
    """One fault.

    Attributes:
        path: of the file.
        fault: what is wrong.
        remains: what can still be read, or what a broker makes of it at its next start.
        offset: of the first record concerned; None where it is not about records.
        position: in the file; None where it is about the whole file.
    """

    path: str
    fault: str
    remains: str
    offset: int | None = None
    position: int | None = None


REBUILT = "a broker rebuilds it from the log when it starts"
"""What becomes of files that can be rebuilt from the log."""


def reason(error: KafkaError) -> str:
    """Return what an error says, without the name of its code."""
    return error.message or str(error)
