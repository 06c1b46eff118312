"""Arrays whose entries are made on iteration, and dropped right after.

A request of a few megabytes may hold millions of entries. Held as objects they would take a hundred
times its memory, and be freed, or looked at by the garbage collector, in one go that takes long. So
`codec/slices` decodes a long array into `Entries` (or `Numbers`), which know where its bytes lie,
and handlers answer with `each`, whose entries are made while the response is encoded.

Rules
- They stand where a message declares a list, but can be counted and iterated only. Each iteration
  makes the entries again (not those of `each_once`): making one must have no effect. Only those of
  `each_dropped` can be had but once.
- A decoded array of at most KEPT_ENTRIES entries is an ordinary list; so is an answer to very few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar, cast

from kraftrio.wire.codec.schema import ARRAY, spec_of
from kraftrio.wire.errors import LocalProtocolError
from kraftrio.wire.primitives import Buffer

KEPT_ENTRIES = 256
_MADE_AT_ONCE = 16

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")

EntryReader = Callable[[Buffer, int], tuple[Any, int]]
"""Reads one entry: (buf, pos) -> (entry, pos after it)."""


class Countable(Sized, Iterable[T_co], Protocol[T_co]):
    """What all arrays of messages can do."""


class LazyArray(ABC, Generic[T]):
    """See the module; equal to a list of the same entries."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[T]: ...

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | LazyArray):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"


class Entries(LazyArray[Any]):
    """The entries of an array that was decoded before, and is known to be well-formed.

    Args:
        pos: where its first entry begins.
        read: decodes one of them.
    """

    __slots__ = ("_buf", "_count", "_read", "_run_pos", "_run_start", "_runs")

    def __init__(self, buf: Buffer, pos: int, read: EntryReader) -> None:
        self._buf = buf
        self._read = read
        self._count = 0
        # What may be decoded again: where it begins and how many; and entries that are held, since
        # they have long arrays of their own, which would have to be stepped over.
        self._runs: list[tuple[int, int] | Any] = []
        self._run_pos = pos
        self._run_start = 0

    def add(self, entry: Any, end: int, *, is_held: bool) -> None:
        """Take the next entry, which ends at `end`."""
        if is_held:
            self._end_run()
            self._runs.append(entry)
            self._run_pos, self._run_start = end, self._count + 1
        self._count += 1

    def _end_run(self) -> None:
        if self._count > self._run_start:
            self._runs.append((self._run_pos, self._count - self._run_start))

    def complete(self) -> None:
        """Take note that the last entry was added."""
        self._end_run()
        self._run_start = self._count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        buf, read = self._buf, self._read
        for run in self._runs:
            if type(run) is not tuple:
                yield run
                continue
            pos, count = run
            for _ in range(count):
                entry, pos = read(buf, pos)
                yield entry


class Numbers(LazyArray[Any]):
    """An array of `count` values of fixed size, each of the `struct` character `code`."""

    __slots__ = ("_count", "_struct", "_view")

    def __init__(self, buf: Buffer, pos: int, count: int, code: str) -> None:
        self._struct = Struct(">" + code)
        self._count = count
        self._view = memoryview(buf)[pos : pos + count * self._struct.size]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for (value,) in self._struct.iter_unpack(self._view):
            yield value


class _Made(LazyArray[U], Generic[T, U]):
    __slots__ = ("_entries", "_make")

    def __init__(self, make: Callable[[T], U], entries: Countable[T]) -> None:
        self._make = make
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[U]:
        return map(self._make, self._entries)


def each(make: Callable[[T], U], entries: Countable[T]) -> list[U]:
    """Make an entry from each entry: now when they are few, else when they are iterated over."""
    if len(entries) <= _MADE_AT_ONCE:
        return [make(entry) for entry in entries]
    return cast(list[U], _Made(make, entries))


class _Remembered(_Made[T, U]):
    """Entries that are made once."""

    __slots__ = ("_made",)

    def __init__(self, make: Callable[[T], U], entries: Countable[T]) -> None:
        super().__init__(make, entries)
        self._made: list[U] | None = None

    def __iter__(self) -> Iterator[U]:
        if self._made is not None:
            yield from self._made
            return
        made = []
        for entry in super().__iter__():
            made.append(entry)
            yield entry
        self._made = made


def each_once(make: Callable[[T], U], entries: Countable[T]) -> list[U]:
    """Make entries like `each`, and keep them for answers to come."""
    if len(entries) <= _LITTLE:  # made once, they leave the answer little for good
        return [make(entry) for entry in entries]
    return cast(list[U], _Remembered(make, entries))


class _Dropped(LazyArray[T]):
    __slots__ = ("_count", "_left")

    def __init__(self, entries: list[T]) -> None:
        self._count = len(entries)
        self._left = entries[::-1]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        while self._left:
            yield self._left.pop()


def each_dropped(entries: list[T]) -> list[T]:
    """Let go of each entry once it is iterated over, so that not all are freed in one go."""
    return entries if len(entries) <= KEPT_ENTRIES else cast(list[T], _Dropped(entries))


class _Pairs(LazyArray[tuple[T, U]], Generic[T, U]):
    __slots__ = ("_first", "_second")

    def __init__(self, first: Countable[T], second: Countable[U]) -> None:
        self._first = first
        self._second = second

    def __len__(self) -> int:
        return len(self._first)

    def __iter__(self) -> Iterator[tuple[T, U]]:
        return zip(self._first, self._second, strict=True)


def pairs(first: Countable[T], second: Countable[U]) -> Countable[tuple[T, U]]:
    """Iterate over two arrays of the same length at once."""
    return _Pairs(first, second)


_LITTLE = 64
_LITTLE_PLAIN = 256  # entries without arrays of their own


def is_little(message: Any) -> bool:
    """Whether a message has so few entries in its arrays that it is encoded in no time.

    It raises nothing: the encoder reports what is wrong with a message.
    """
    cls = type(message)
    arrays = _ARRAYS.get(cls)
    if arrays is None:
        arrays = _ARRAYS[cls] = _arrays(cls)
    for name, nested in arrays:
        entries = getattr(message, name)
        if not entries:
            continue
        if type(entries) is not list or len(entries) > (_LITTLE if nested else _LITTLE_PLAIN):
            return False
        for inner in nested:
            for entry in entries:
                of_entry = getattr(entry, inner, None)
                if of_entry and (type(of_entry) is not list or len(of_entry) > _LITTLE):
                    return False
    return True


_ARRAYS: dict[type[Any], list[tuple[str, list[str]]]] = {}


def _arrays(cls: type[Any]) -> list[tuple[str, list[str]]]:
    """The arrays of a message, and those within their entries; none of what is not a message."""
    try:
        fields = spec_of(cls).fields
    except LocalProtocolError:
        return []
    found = []
    for field in fields:
        if field.kind is ARRAY:
            nested = []
            if isinstance(field.element, type):
                nested = [one.name for one in spec_of(field.element).fields if one.kind is ARRAY]
            found.append((field.name, nested))
    return found
