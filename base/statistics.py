"""What a part of the process says of itself in numbers: how much it holds, how much it has done.

Rules for names, so that one reader can show them all:
- snake_case in Kafka's terms, with the unit last: `partitions`, `request_bytes`, `oldest_wait_ms`;
- a gauge is the value of now; a counter only grows while the process runs and ends in `_total`;
- no prefix for the part itself: the caller that gathers several adds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from kraftrio.base.histogram import Spread

Statistics: TypeAlias = Mapping[str, float]

LabelledStatistics: TypeAlias = Mapping[str, Mapping[tuple[str, ...], float | Spread]]
"""Figures of many things of a kind (topics, APIs): by name, then by what they are of."""


class HasStatistics(Protocol):
    """A shell that can be asked for its figures, at any time, without waiting."""

    def statistics(self) -> Statistics:
        """A snapshot: the caller may keep it; later changes do not show in it.

        It costs a walk over what the shell holds at most, and nothing while nobody asks: what is
        counted on the hot path is counted by a plain addition.
        """
        ...
