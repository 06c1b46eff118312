"""Which committed offsets of groups must be found: `KnownCommits`.

Rule: a commit that was acknowledged is never taken back, so who asks later finds it or a later
one. Nothing is expected while an old coordinator may answer, one that is replaced and does not
know it yet: it answers what it knows, as Apache Kafka's does. That does no harm to a member of a
group: it reads some records again, and its next commit belongs to a generation that the new
coordinator does not know.

Called by: `history`, `transaction_model`.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftrio.wire.primitives import TopicPartition


class KnownCommits:
    """See the module.

    Args:
        has_old_coordinator: whether there is one now.
    """

    def __init__(self, has_old_coordinator: Callable[[], bool]) -> None:
        self.has_old_coordinator = has_old_coordinator
        self._offsets: dict[tuple[str, TopicPartition], int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def acknowledge(self, group: str, topic_partition: TopicPartition, offset: int) -> None:
        """A commit was acknowledged."""
        key = (group, topic_partition)
        self._offsets[key] = max(self._offsets.get(key, 0), offset)

    def least(self, group: str, topic_partition: TopicPartition) -> int:
        """The lowest offset that an OffsetFetch sent now may find."""
        if self.has_old_coordinator():
            return 0
        return self._offsets.get((group, topic_partition), 0)
