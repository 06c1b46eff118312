"""What the runtime asks of the shard of a coordinator: the state of one partition of its topic.

A shard is a core without input or output. Its methods are called from synchronous code, one at a
time; what they decide they give back as an `Outcome`, and the runtime carries that out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from kraftrio.broker.coordinator.outcome import Change, FollowUp, Now, Outcome, RecordMessages
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import NO_PRODUCER_ID


class CoordinatorShard(Protocol):
    """The state of one partition, whatever it is about (groups, transactions...)."""

    # --- changes ---

    def replay(
        self,
        record_offset: int,
        key: Buffer,
        value: Buffer | None,
        now: Now,
        *,
        producer_id: int = NO_PRODUCER_ID,
        committed: bool = True,
        messages: RecordMessages | None = None,
    ) -> None:
        """Apply one record of the log.

        Args:
            producer_id: whose transaction the record belongs to, until its end marker comes.
            committed: False for a record that was just appended.
            messages: what key and value say, if this shard made the record.

        Raises:
            RemoteProtocolError: the record cannot be read; it is passed over.
        """

    def replay_end_transaction(
        self, producer_id: int, end_offset: int, now: Now, *, commit: bool, committed: bool = True
    ) -> None:
        """Apply the marker that ends a producer's transaction, and lies right below `end_offset`.

        Args:
            commit: whether its records count from now on, or never do.
            committed: False for a marker that was just appended.
        """

    def apply(
        self, change: Change, end_offset: int, now: Now, *, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply the change of an outcome whose records were appended, up to `end_offset`.

        Args:
            producer_id: whose transaction they belong to.
        """

    def on_committed(self, end_offset: int) -> None:
        """Everything below an offset of the partition is committed."""

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """The records of an outcome with this follow-up are committed, or failed."""

    # --- life ---

    def on_loaded(self, now: Now) -> Outcome:
        """Everything was replayed; requests may come from now on."""

    def on_leader_epoch(self, leader_epoch: int) -> None:
        """This broker goes on leading the partition, in a higher leader epoch."""

    def unload(self, now: Now) -> Outcome:
        """This broker stops leading the partition: answer the parked requests."""

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> Outcome:
        """Topics (by name, with the id each had) were deleted from the cluster."""

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        """Topics are new, gone, or have other partitions or replicas; the metadata has them."""

    # --- time ---

    def next_deadline_ms(self) -> float | None:
        """When `on_deadline` is to be called, on the monotonic clock; None: never."""

    def on_deadline(self, now: Now) -> list[Outcome]:
        """Do everything whose time has come."""
