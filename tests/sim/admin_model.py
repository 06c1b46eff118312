"""What administrators were answered, and what must be there of it in the end.

Owns: `AdminModel`, which knows nothing of brokers. Whatever was acknowledged and not changed since
holds: topics with their partitions, topics that are gone, settings. What was asked for and not
answered clearly may come true at any later time, so nothing is promised of that name any more.
"""

from __future__ import annotations

from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.wire.errors import ErrorCode

_TOPIC = 2  # the resource type
# What says that nothing was changed, and nothing will be.
_REFUSED = frozenset(
    {
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_PARTITIONS,
    }
)


class AdminModel:
    """See the module."""

    def __init__(self) -> None:
        self._partitions: dict[str, int] = {}  # of topics; 0: it is gone
        self._configs: dict[tuple[str, str], str] = {}
        self._slots: dict[int, str] = {}
        self._uncertain: set[str] = set()
        self.count = 0  # of what was acknowledged

    def name(self, slot: int) -> str:
        """The name of a topic that comes and goes: another one once its state is uncertain."""
        name = self._slots.setdefault(slot, f"topic{slot}")
        if name in self._uncertain:
            name = self._slots[slot] = f"{name}x"
        return name

    def partitions(self, topic: str) -> int:
        """How many a topic has; 0: it is not there, or nobody knows."""
        return self._partitions.get(topic, 0)

    def on_answer(self, topic: str, code: ErrorCode | None, partitions: int) -> None:
        """A topic was to have so many partitions from then on, 0: to go.

        Args:
            code: what was answered; None: nothing.
        """
        known = self._partitions.get(topic)
        if code is ErrorCode.NONE:
            self.count += 1
            self._partitions[topic] = partitions
            return
        is_refused = code in _REFUSED or (
            code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not known and known is not None
        )
        is_refused |= code is ErrorCode.TOPIC_ALREADY_EXISTS and bool(known)
        if not is_refused:
            self._partitions.pop(topic, None)
            self._uncertain.add(topic)

    def on_config(self, topic: str, name: str, value: str, code: ErrorCode | None) -> None:
        """A topic was to have a setting; see `on_answer`."""
        key = (topic, name)
        if topic in self._uncertain or f"{topic} {name}" in self._uncertain:
            return
        if code is ErrorCode.NONE:
            self.count += 1
            self._configs[key] = value
        else:
            self._configs.pop(key, None)
            self._uncertain.add(f"{topic} {name}")

    def missing(self, image: MetadataImage) -> str:
        """Tell what was acknowledged and is not there; "" when all is."""
        for topic, count in self._partitions.items():
            found = image.topic(topic)
            there = 0 if found is None else len(found.partitions)
            if there != count:
                return f"{topic} has {there} partitions, where {count} were acknowledged"
        for (topic, name), value in self._configs.items():
            config = image.config(_TOPIC, topic).get(name)
            if config != value:
                return f"{name} of {topic} is {config}, where {value} was acknowledged"
        return ""

    def gone(self) -> list[str]:
        """Topics that were deleted for good."""
        return [topic for topic, count in self._partitions.items() if not count]
