"""Sets and sorted sequences of very many values, for work in slices.

A set or list of a million values takes tens of milliseconds in one step to grow or to sort.
These are made of many small ones. Pure; called by handlers.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from kraftrio.wire.codec.slices import Slices

H = TypeVar("H", bound=Hashable)

_PARTS = 256
_FEW = 16  # up to so many are compared one by one
_SORTED_AT_ONCE = 1024


class SlicedSet(Generic[H]):
    """A set that grows in small steps. Strings and numbers cost the garbage collector nothing."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[set[H]] = [set()]

    def add(self, value: H) -> bool:
        """Add a value; return whether it is new."""
        parts = self._parts
        part = parts[hash(value) % len(parts)]
        if value in part:
            return False
        part.add(value)
        if len(parts) == 1 and len(part) > _SORTED_AT_ONCE:
            self._parts = [set() for _ in range(_PARTS)]
            for one in part:
                self._parts[hash(one) % _PARTS].add(one)
        return True

    def __contains__(self, value: object) -> bool:
        return value in self._parts[hash(value) % len(self._parts)]

    def __len__(self) -> int:
        return sum(map(len, self._parts))


class Distinct(Generic[H]):
    """Different values, in the order of their first coming."""

    __slots__ = ("_seen", "values")

    def __init__(self) -> None:
        self.values: list[H] = []
        self._seen: SlicedSet[H] | None = None  # made when they are more than a few

    def add(self, value: H) -> None:
        """Add a value, if it is new."""
        if self._seen is None:
            if value in self.values:
                return
            if len(self.values) < _FEW:
                self.values.append(value)
                return
            self._seen = SlicedSet()
            for one in self.values:
                self._seen.add(one)
        if self._seen.add(value):
            self.values.append(value)


def distinct(values: Iterable[H]) -> Slices[list[H]]:
    """List the different values, in the order of their first coming."""
    found: Distinct[H] = Distinct()
    for value in values:
        found.add(value)
        yield
    return found.values


class Repeated(Generic[H]):
    """Those of the values added that came more than once."""

    __slots__ = ("_seen", "values")

    def __init__(self) -> None:
        self.values: SlicedSet[H] = SlicedSet()
        self._seen: SlicedSet[H] = SlicedSet()

    def add(self, value: H) -> None:
        """Add a value."""
        if not self._seen.add(value):
            self.values.add(value)


def repeated(values: Iterable[H]) -> Slices[SlicedSet[H]]:
    """Find the values that come more than once."""
    found: Repeated[H] = Repeated()
    for value in values:
        found.add(value)
        yield
    return found.values


def in_order(names: Iterable[str]) -> Slices[Iterator[str]]:
    """Sort names; the iterator does the last part of the work, step by step."""
    runs: list[list[str]] = []
    run: list[str] = []
    for name in names:
        run.append(name)
        if len(run) == _SORTED_AT_ONCE:
            run.sort()
            runs.append(run)
            run = []
            yield
    run.sort()
    runs.append(run)
    yield
    return iter(run) if len(runs) == 1 else heapq.merge(*runs)
