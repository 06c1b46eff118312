"""What keeps a streams group from being assigned tasks: topics that are missing, or do not fit.

The members are told by a status of their heartbeat's response, which is not an error: the group
waits until the topics are there. Called by `configured_topology` and what it uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

_MAX_NAMED = 3  # topics


class HeartbeatStatus(IntEnum):
    """The status that a member gets besides its tasks, by the code on the wire."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblemError(Exception):
    """Topics are not as the topology needs them."""

    def __init__(self, status: HeartbeatStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail

    @classmethod
    def incorrectly_partitioned(cls, detail: str) -> TopicProblemError:
        """Topics have numbers of partitions that do not go together."""
        return cls(HeartbeatStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)

    @classmethod
    def missing_source_topics(cls, topics: Sequence[str]) -> TopicProblemError:
        """External topics do not exist; the broker does not make them."""
        return cls(
            HeartbeatStatus.MISSING_SOURCE_TOPICS, f"Source topics {summary(topics)} are missing."
        )

    @classmethod
    def missing_internal_topics(cls, topics: Sequence[str]) -> TopicProblemError:
        """The group's own topics do not exist yet."""
        return cls(
            HeartbeatStatus.MISSING_INTERNAL_TOPICS,
            f"Internal topics are missing: {summary(topics)}",
        )


def summary(topics: Sequence[str]) -> str:
    """Name the first few topics, and say how many more there are."""
    named = ", ".join(topics[:_MAX_NAMED])
    more = len(topics) - _MAX_NAMED
    return f"{named} and {more} additional topics" if more > 0 else named
