"""What maps in an image have in common, and parts of it that know their own records: `ImagePart`.

Owns: `apply_changes` and `changes_between`, for every map of the image, and the base of the parts.
A part is a field of `MetadataImage` that is a map; its class says which records change it, and
which ones it is made of. `image.PARTS` is the table of them, and all that `image` knows of them.

Called by: image.py, and the modules of the parts (acl_image.py ...).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")


def apply_changes(previous: Map[K, V], changes: Mapping[K, V | None]) -> Map[K, V]:
    """Return a map with changes; what is None, 0 or empty leaves it."""
    if not changes:
        return previous
    mutation = previous.mutate()
    for key, value in changes.items():
        if value:
            mutation[key] = value
        elif key in mutation:
            del mutation[key]
    return mutation.finish()


def changes_between(previous: Map[K, V], current: Map[K, V], nothing: V) -> dict[K, V]:
    """Return what to change in a map to get another, in the order of keys.

    `nothing` is the new value of what is not in the other.
    """
    if previous is current:
        return {}
    keys: list[Any] = sorted({*previous, *current})
    changes: dict[K, V] = {}
    for key in keys:
        value = current.get(key, nothing)
        if previous.get(key, nothing) != value:
            changes[key] = value
    return changes


class ImagePart(ABC, Generic[K, V]):
    """What changes in a part of the image, beginning with the part as it was.

    Class attributes:
        FIELD: the field of `MetadataImage`.
        RECORDS: the records that are this part's alone.

    Attributes:
        previous: the part as it was.
        changed: the new values by key; None for what is gone.
    """

    FIELD: ClassVar[str]
    RECORDS: ClassVar[tuple[type[Any], ...]]

    __slots__ = ("changed", "previous")

    def __init__(self, previous: Map[K, V]) -> None:
        self.previous = previous
        self.changed: dict[K, V | None] = {}

    @abstractmethod
    def replay(self, record: Any) -> None:
        """Take the next record of the log, one of RECORDS."""

    @staticmethod
    @abstractmethod
    def to_records(entries: Map[Any, Any]) -> Iterator[Any]:
        """Yield the records that make these entries, in a fixed order."""

    def current(self, key: K) -> V | None:
        """Return an entry with the changes so far; None if there is none."""
        if key in self.changed:
            return self.changed[key]
        return self.previous.get(key)

    def remove(self, key: K) -> None:
        """Remove an entry, which must exist."""
        assert self.current(key) is not None, "a record that removes what does not exist"
        self.changed[key] = None

    def become(self, entries: Map[K, V]) -> None:
        """Change to these entries, whatever the part was (a snapshot was loaded)."""
        nothing: Any = None
        self.changed = dict(changes_between(self.previous, entries, nothing))

    def apply(self) -> Map[K, V]:
        """Return the part after the changes."""
        return apply_changes(self.previous, self.changed)
