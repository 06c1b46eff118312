"""Drives work in slices to its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finish(work: Generator[None, None, T]) -> T:
    """Return the value of some work."""
    return finish_counting(work)[0]


def finish_counting(work: Generator[None, None, T]) -> tuple[T, int]:
    """Return the value of some work, and how many pauses there were."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1
