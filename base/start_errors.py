"""Why a node ends by itself: two errors whose text is one plain sentence for the user.

Raised by `node` and `storage`, reported by the command line.
"""

from __future__ import annotations


class NodeError(Exception):
    """The node cannot go on."""


class StartError(NodeError):
    """The node cannot start."""


def reason(error: BaseException) -> str:
    """What happened, in words for a user."""
    if isinstance(error, OSError) and error.strerror:
        name = f" ({error.filename})" if error.filename else ""
        return error.strerror + name
    return str(error)
