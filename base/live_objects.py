"""Long-lived objects, which the garbage collector passes over, and how often it looks at others.

Each partition is some hundred objects that stay, and a full collection that looks at those of
thousands stops everybody for a tenth of a second. The node calls `LiveObjects.freeze` once it has
made many of them.

What refers to itself and is dropped after it was frozen is not freed: connections that were open
then, say, if they end with an exception. So all that is frozen is looked at again whenever it has
doubled: that takes less time than it took to make, and bounds what is not freed by what was live.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEW_OBJECTS: Final = 10_000  # Python's own is 700


class LiveObjects:
    """See the module. One for each process."""

    __slots__ = ("_looked_at",)

    def __init__(self) -> None:
        self._looked_at = 0  # how many there were then

    def freeze(self) -> None:
        """Let later collections pass over the objects that there are now.

        What refers to itself and is no longer in use goes first. The time goes with the objects
        made since the last call, or with all of them where they have doubled.
        """
        has_doubled = gc.get_freeze_count() >= 2 * self._looked_at
        if has_doubled and self._looked_at:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        if has_doubled:
            self._looked_at = gc.get_freeze_count()


def collect_less_often() -> None:
    """Let the collector wait for more new objects: for a process that is a broker and nothing else.

    Most of what is new to it at any time is in use, such as requests that wait and members that
    join: with a thousand connections a fourth of the processor's time went into finding that out.
    Little of what a broker drops refers to itself, and needs the collector.
    """
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def making_permanent_objects() -> Iterator[None]:
    """Collect no garbage while the body makes permanent objects, such as modules; freeze them.

    Collections while a broker's modules are loaded take a tenth of its start, and find nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
