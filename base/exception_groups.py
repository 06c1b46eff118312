"""What really happened, where a nursery wrapped it into exception groups."""

from __future__ import annotations


def innermost(error: BaseException) -> BaseException:
    """Return the first plain exception of a group; what is no group is returned as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
