"""The libraries that only the console needs, which may not be installed.

Called by: the command, and the node's command.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from kraftrio.clients.cli.failures import CommandError

LIBRARIES: Final = frozenset({"starlette", "hypercorn", "jinja2"})


def import_server() -> ModuleType:
    """Import what serves a console.

    Raises:
        CommandError: a library is not installed; says how to get it.
    """
    try:
        from kraftrio.clients.console import server
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in LIBRARIES:
            raise
        raise CommandError(
            f"the console needs the library {library}: pip install 'kraftrio[console]'"
        ) from None
    return server
