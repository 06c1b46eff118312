"""What things take of memory that a broker may have thousands of, and whether that is freed."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def bytes_each(make: Callable[[int], object], count: int = 200) -> float:
    """Make some things; return what each of them holds, as far as the product allocates it."""
    kept = [make(number) for number in range(count)]  # what is made once, for all of them
    gc.collect()
    tracemalloc.start()
    try:
        kept += [make(number) for number in range(count, 2 * count)]
        gc.collect()
        own = tracemalloc.Filter(True, f"{ROOT}/kraftrio/*")
        statistics = tracemalloc.take_snapshot().filter_traces([own]).statistics("filename")
    finally:
        tracemalloc.stop()
    return sum(each.size for each in statistics) / count


@contextmanager
def freed_by_itself() -> Iterator[None]:
    """Fail if something of the product that the body makes and drops is left to the collector.

    It would stay if it had been frozen (`base/live_objects`).
    """
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        modules = {type(one).__module__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not [name for name in modules if name.startswith("kraftrio.")]
