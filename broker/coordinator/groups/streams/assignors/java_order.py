"""Orders of Java's collections, by which Kafka's assignor happens to choose between equals.

`hash_order` is how a HashMap with string keys iterates; `LoadQueue` hands out what its
PriorityQueue would. Both do with each entry what the collections do. (Except for a HashMap with
nine or more keys in one bucket, which random member ids do not lead to.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Generic, TypeVar

from kraftrio.broker.coordinator.partitioning import java_hash

T = TypeVar("T")

_DEFAULT_BUCKETS = 16
_FULL_NUMERATOR, _FULL_DENOMINATOR = 3, 4  # a table that is fuller than this doubles


def hash_order(names: Iterable[str], expected_count: int | None = None) -> list[str]:
    """Return distinct names in the order of a HashMap that they were put into one by one.

    Args:
        expected_count: the number of entries that the map was made for; None: the default.
    """
    distinct = list(dict.fromkeys(names))
    buckets = _DEFAULT_BUCKETS
    if expected_count is not None:
        buckets = 1 << (expected_count - 1).bit_length() if expected_count > 1 else 1
    while len(distinct) > buckets * _FULL_NUMERATOR // _FULL_DENOMINATOR:
        buckets *= 2

    codes = [java_hash(name) & 0xFFFF_FFFF for name in distinct]
    placed = zip([(code ^ code >> 16) & (buckets - 1) for code in codes], distinct, strict=True)
    return [name for _, name in sorted(placed, key=itemgetter(0))]


def text_order(text: str) -> bytes:
    """Key that sorts texts as Java does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


class LoadQueue(Generic[T]):
    """A heap that gives the entry with the least load; of equal ones the one that Java's gives.

    An entry's load may change only while it is taken out.
    """

    __slots__ = ("_heap", "_load")

    def __init__(self, entries: Iterable[T], load: Callable[[T], float]) -> None:
        self._heap: list[tuple[float, T]] = []
        self._load = load
        for entry in entries:
            self.add(entry)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, entry: T) -> None:
        """Put an entry in, with the load that it has now."""
        heap = self._heap
        load = self._load(entry)
        position = len(heap)
        heap.append((load, entry))
        while position > 0:
            parent = (position - 1) >> 1
            above = heap[parent]
            if load >= above[0]:
                break
            heap[position] = above
            position = parent
        heap[position] = (load, entry)

    def take(self) -> T:
        """Take the first entry out."""
        heap = self._heap
        first = heap[0][1]
        last = heap.pop()
        size = len(heap)
        if not size:
            return first
        position, half = 0, size >> 1
        while position < half:
            child = 2 * position + 1
            right = child + 1
            if right < size and heap[child][0] > heap[right][0]:
                child = right
            if last[0] <= heap[child][0]:
                break
            heap[position] = heap[child]
            position = child
        heap[position] = last
        return first
