"""Drives work in slices to its end."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Iterable
from typing import Any, TypeVar, cast, overload

from kraftrio.wire.primitives import Buffer
from kraftrio.wire.stored_bytes import Piece

T = TypeVar("T")


def joined(pieces: Iterable[Piece]) -> bytes:
    """Return the bytes of pieces none of which is stored elsewhere."""
    return b"".join(cast("Iterable[Buffer]", pieces))


@overload
def finish(work: Generator[Any, None, T]) -> T: ...


@overload
def finish(work: T) -> T: ...


def finish(work: Any) -> Any:
    """Return the value of some work; what little there was to do is done already."""
    return finish_counting(work)[0] if isinstance(work, Generator) else work


def finish_counting(work: Generator[Any, None, T]) -> tuple[T, int]:
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
