"""What the rest of a consumer asks of its membership, whichever protocol its group speaks.

Owns the ports `Standing`, which says what the two state machines know (`classic_standing` of
`membership/membership`, `epoch_standing` of `heartbeat_member/member`), and `GroupMember`, which
their shells fill (`classic_member`, `epoch_member`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from kraftrio.clients.consumer.listener import RebalanceListener
from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.group_offsets import GroupMetadata
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition


class Standing(Protocol):
    """Who a member is, and what it may commit."""

    @property
    def member_id(self) -> str:
        """The member's id; empty while it has none."""

    @property
    def failure(self) -> KafkaClientError | None:
        """What has ended the membership for good."""

    @property
    def metadata(self) -> GroupMetadata:
        """Who the member is at the moment."""

    @property
    def owner(self) -> GroupMetadata | None:
        """As which member it was given what it owns; None while it was given nothing."""

    @property
    def reader(self) -> GroupMetadata | None:
        """As which member committed offsets are asked for; None where nobody is to be named."""

    @property
    def can_commit(self) -> bool:
        """Whether the coordinator takes commits from the member for what it owns."""

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member is on its way to another assignment, or ought to be."""

    def tenure(self, partitions: Iterable[TopicPartition]) -> Hashable:
        """Return what stays equal as long as a commit of these partitions is the member's to make.

        It is compared, and means nothing else.
        """

    def refused(self, code: ErrorCode) -> None:
        """A commit was refused because of who sent it."""


class GroupMember(Protocol):
    """Keeps a consumer in its group."""

    @property
    def standing(self) -> Standing:
        """Who the member is."""

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None) -> None:
        """Want these topics."""

    def subscribe_pattern(self, pattern: str, listener: RebalanceListener | None) -> None:
        """Want the topics whose names match, as the broker finds them.

        Raises:
            ValueError: the group's protocol has no such patterns.
        """

    def want_topics(self, topics: Iterable[str]) -> None:
        """Want these topics, with the listener as it is."""

    def polled(self) -> None:
        """The application polls."""

    def recover(self) -> None:
        """Join again with the next poll, if what has ended the membership may have changed."""

    def metadata_changed(self) -> None:
        """Metadata of topics has changed."""

    def wake(self) -> None:
        """Look again what is to be done."""

    async def leave(self, *, commit: bool) -> None:
        """Give up everything and leave, as far as the coordinator can be reached."""

    async def run(self) -> None:
        """Do what the membership wants done, as long as the consumer is open."""

    async def run_heartbeats(self) -> None:
        """Send heartbeats to the coordinator as long as the consumer is open."""
