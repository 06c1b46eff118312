"""How much memory things take that a broker may have thousands of."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
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
