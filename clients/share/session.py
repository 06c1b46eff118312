"""The share session with one broker: which partitions it is to give, and the next epoch.

Rules:
1. The first request opens the session (epoch 0) and names every partition. Later ones name what is
   new, what is not wanted any more, and what acknowledgements are for; each has the next epoch.
2. After a request that was not answered, or refused, another session is opened: the broker has
   released the records of the one before, or will. Acknowledgements need a session that is open.
3. Closing it (epoch -1) releases what was not acknowledged.

Sans-IO. Called by: `fetcher`. KIP-932, "Share sessions".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from kraftrio.clients.arguments.values import MAX_INT32
from kraftrio.clients.share.acknowledgements import (
    Acknowledgements,
    TopicIdPartition,
    batches_of,
)
from kraftrio.wire.messages.share_fetch import (
    ShareAcknowledgePartition,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchTopic,
    ShareForgottenTopic,
)

OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1


class Named(NamedTuple):
    """The partitions that a fetch names: those that are new or acknowledged, and those to drop."""

    topics: list[ShareFetchTopic]
    forgotten: list[ShareForgottenTopic]


class ShareSession:
    """See the module.

    Attributes:
        epoch: of the next request.
    """

    def __init__(self) -> None:
        self.epoch = OPENING_EPOCH
        self._partitions: frozenset[TopicIdPartition] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether the broker knows the session."""
        return self.epoch != OPENING_EPOCH

    def fetch(
        self, wanted: Collection[TopicIdPartition], acknowledgements: Acknowledgements
    ) -> Named:
        """Fetch these partitions, and no others; return what the request has to name."""
        assert self.is_open or not acknowledgements, "nothing was handed out in a new session"
        chosen = frozenset(wanted)
        named: dict[TopicIdPartition, Mapping[int, int]] = {
            partition: {} for partition in sorted(chosen - self._partitions)
        }
        named.update(acknowledgements)
        topics: dict[bytes, ShareFetchTopic] = {}
        for (topic_id, (_, index)), offsets in named.items():
            topic = topics.setdefault(topic_id, ShareFetchTopic(topic_id=topic_id))
            topic.partitions.append(
                ShareFetchPartition(
                    partition_index=index, acknowledgement_batches=batches_of(offsets)
                )
            )
        forgotten: dict[bytes, ShareForgottenTopic] = {}
        for topic_id, (_, index) in sorted(self._partitions - chosen):
            topic_left = forgotten.setdefault(topic_id, ShareForgottenTopic(topic_id=topic_id))
            topic_left.partitions.append(index)
        self._partitions = chosen
        return Named(list(topics.values()), list(forgotten.values()))

    def answered(self) -> None:
        """The broker has taken a request: the next one has the next epoch."""
        self.epoch = self.epoch + 1 if self.epoch < MAX_INT32 else 1

    def reset(self) -> None:
        """Begin another session: the broker has none, or it is unknown what it has got."""
        self.epoch = OPENING_EPOCH
        self._partitions = frozenset()


def acknowledge_topics(acknowledgements: Acknowledgements) -> list[ShareAcknowledgeTopic]:
    """Return acknowledgements as a ShareAcknowledge holds them."""
    topics: dict[bytes, ShareAcknowledgeTopic] = {}
    for (topic_id, (_, index)), offsets in acknowledgements.items():
        topic = topics.setdefault(topic_id, ShareAcknowledgeTopic(topic_id=topic_id))
        topic.partitions.append(
            ShareAcknowledgePartition(
                partition_index=index, acknowledgement_batches=batches_of(offsets)
            )
        )
    return list(topics.values())
