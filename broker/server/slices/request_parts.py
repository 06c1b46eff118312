"""Cuts what a request names into parts that each take little time, in the order of the request.

Where the entries of a request are independent, a core is asked about one part after the other: it
sees a consistent state for each. Pure; called by handlers that work in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from kraftrio.wire.codec.slices import Slices

PART_ENTRIES: Final = 250

G = TypeVar("G")
E = TypeVar("E")


def listed(entries: Iterable[E]) -> Slices[list[E]]:
    """Make a list of entries that are not too many to be held."""
    found = []
    for entry in entries:
        found.append(entry)
        yield
    return found


def parts(entries: Iterable[E], size: int = PART_ENTRIES) -> Iterator[list[E]]:
    """Cut entries into lists of at most `size`."""
    part: list[E] = []
    for entry in entries:
        part.append(entry)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def nested_parts(
    groups: Iterable[G], entries_of: Callable[[G], Iterable[E]], size: int = PART_ENTRIES
) -> Iterator[list[tuple[G, list[E]]]]:
    """Cut groups of entries (the partitions of topics, say), a long group into several.

    A part has at most `size` groups and entries together. A group without entries comes once.
    """
    part: list[tuple[G, list[E]]] = []
    room = size
    for group in groups:
        taken: list[E] = []
        part.append((group, taken))
        room -= 1
        for entry in entries_of(group):
            if room <= 0:
                yield part
                taken = []
                part, room = [(group, taken)], size - 1
            taken.append(entry)
            room -= 1
        if room <= 0:
            yield part
            part, room = [], size
    if part:
        yield part
