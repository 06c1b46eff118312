"""Drives work in slices to its end."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def finish(work: Generator[None, None, T] | T) -> T:
    """Return the value of some work; what little there was to do is done already."""
    return finish_counting(work)[0] if isinstance(work, Generator) else work


def finish_counting(work: Generator[None, None, T]) -> tuple[T, int]:
    """Return the value of some work, and how many pauses there were."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def finish_timing(work: Generator[Any, None, T]) -> tuple[T, float]:
    """Return the value of some work, and the CPU time of its longest step in seconds.

    What the tests hold already costs the steps no time of the garbage collector.
    """
    longest_s = 0.0
    gc.collect()
    gc.freeze()
    try:
        while True:
            began_s = time.thread_time()
            try:
                next(work)
            except StopIteration as end:
                return end.value, max(longest_s, time.thread_time() - began_s)
            longest_s = max(longest_s, time.thread_time() - began_s)
    finally:
        gc.unfreeze()
