"""The records that a share consumer's program has in hand, and those it has not got yet.

Rules:
1. With implicit acknowledgements, asking for more accepts what was handed over before. With
   explicit ones the program acknowledges each record before it asks for more; a record that is
   renewed is kept, and may be acknowledged later.
2. A record whose lock has run out is not handed over: another member gets it.
3. When the consumer is closed, what is in hand is released after an error, or if acknowledgements
   are explicit; else it is accepted.

No await comes between taking something and handing it over, so that a cancelled call loses nothing.

Sans-IO. Called by: `share/consumer`, `fetcher`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kraftrio.clients.errors import AcknowledgementStateError
from kraftrio.clients.share.acknowledgements import (
    AcknowledgeType,
    PendingAcknowledgements,
    TopicIdPartition,
)
from kraftrio.clients.share.records import ShareBatch, ShareRecord

_Key = tuple[TopicIdPartition, int]


class InHand:
    """See the module.

    Args:
        on_first: see `PendingAcknowledgements`.

    Attributes:
        pending: acknowledgements that are to be sent to brokers.
    """

    def __init__(self, *, is_explicit: bool, on_first: Callable[[], None]) -> None:
        self.pending = PendingAcknowledgements(on_first)
        self._is_explicit = is_explicit
        self._waiting: deque[ShareBatch[Any, Any]] = deque()  # not handed over yet
        # The rest of a batch whose records are handed over one by one.
        self._open: deque[ShareRecord[Any, Any]] = deque()
        self._held: dict[_Key, ShareRecord[Any, Any]] = {}  # handed over, and not acknowledged
        self._renewed: set[_Key] = set()  # of those, the ones that may stay in hand

    # -- what comes -----------------------------------------------------------------------------

    def add(self, batch: ShareBatch[Any, Any]) -> None:
        """Add a batch that a broker has delivered."""
        if batch.records:
            self._waiting.append(batch)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be handed over."""
        return not self._waiting and not self._open

    @property
    def waiting_records(self) -> int:
        """How many records wait to be handed over."""
        return len(self._open) + sum(map(len, self._waiting))

    @property
    def held_records(self) -> int:
        """How many were handed over, and are not acknowledged."""
        return len(self._held)

    # -- what goes to the program ---------------------------------------------------------------

    def finish(self) -> None:
        """The program asks for more: accept what it has (implicit), or require that it said so.

        Raises:
            AcknowledgementStateError: a record is not acknowledged.
        """
        if not self._is_explicit:
            self._acknowledge_held(AcknowledgeType.ACCEPT)
            return
        for key, record in self._held.items():
            if key not in self._renewed:
                raise AcknowledgementStateError(
                    f"the record at offset {record.offset} of {record.topic}-{record.partition} is"
                    " not acknowledged: accept, release, reject or renew it before the next call"
                )

    def next_record(self, now_s: float) -> ShareRecord[Any, Any] | None:
        """Return the next record; None when none is there."""
        while True:
            if self._open:
                record = self._open.popleft()
                if record.batch.locked_until_s > now_s:
                    self._hold(record)
                    return record
            elif self._waiting:
                self._open.extend(self._waiting.popleft().records)
            else:
                return None

    def next_batch(self, now_s: float, limit: int | None = None) -> ShareBatch[Any, Any] | None:
        """Return the next batch, of `limit` records at most; None when none is there."""
        self._close_open()
        while self._waiting:
            batch = self._waiting.popleft()
            if batch.locked_until_s <= now_s:
                continue
            if limit is not None:
                batch, rest = batch.split(limit)
                if rest is not None:
                    self._waiting.appendleft(rest)
            for record in batch.records:
                self._hold(record)
            return batch
        return None

    def next_batches(self, now_s: float, limit: int) -> list[ShareBatch[Any, Any]]:
        """Return all batches that are there, with `limit` records at most."""
        batches: list[ShareBatch[Any, Any]] = []
        while limit > 0 and (batch := self.next_batch(now_s, limit)) is not None:
            limit -= len(batch)
            batches.append(batch)
        return batches

    def put_back(self, batches: list[ShareBatch[Any, Any]]) -> None:
        """Take back batches that were handed over last, and did not reach the program."""
        self._close_open()
        for batch in reversed(batches):
            for record in batch.records:
                self._held.pop((batch.partition_key, record.offset), None)
            self._waiting.appendleft(batch)

    def put_back_record(self, record: ShareRecord[Any, Any]) -> None:
        """As `put_back`, for what `next_record` has returned."""
        self._held.pop((record.batch.partition_key, record.offset), None)
        self._open.appendleft(record)

    def _hold(self, record: ShareRecord[Any, Any]) -> None:
        key = (record.batch.partition_key, record.offset)
        self._held[key] = record
        self._renewed.discard(key)  # of an earlier delivery

    def _close_open(self) -> None:
        """Put what is left of an open batch back, to be taken in another way."""
        if self._open:
            first = self._open[0].batch
            _, rest = first.split(len(first) - len(self._open))
            self._waiting.appendleft(first if rest is None else rest)
            self._open.clear()

    # -- what the program says ------------------------------------------------------------------

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType) -> None:
        """Acknowledge a record; until that is sent, another acknowledgement may replace it.

        Raises:
            AcknowledgementStateError: acknowledgements are implicit, or it is not in hand any more.
        """
        if not self._is_explicit:
            raise AcknowledgementStateError(
                'records are acknowledged by the consumer: share_acknowledgement_mode is "implicit"'
            )
        batch = record.batch
        key = (batch.partition_key, record.offset)
        if self._held.get(key) is record:
            if kind is AcknowledgeType.RENEW:
                self._renewed.add(key)
            else:
                del self._held[key]
                self._renewed.discard(key)
        elif not self.pending.has(batch.node_id, *key) or key in self._held:
            raise AcknowledgementStateError(
                f"the record at offset {record.offset} of {record.topic}-{record.partition} is not"
                " in hand: it was acknowledged, or was never handed over"
            )
        elif kind is AcknowledgeType.RENEW:
            self._held[key] = record
            self._renewed.add(key)
        self.pending.add(batch.node_id, *key, kind)

    def acknowledge_undelivered(
        self, node_id: int, partition: TopicIdPartition, offsets: list[int], kind: int
    ) -> None:
        """Acknowledge acquired offsets whose records the program never gets."""
        for offset in offsets:
            self.pending.add(node_id, partition, offset, kind)

    def settle(self, *, is_done: bool) -> None:
        """The consumer is closed: accept or release what is in hand, and drop the rest (rule 3).

        Args:
            is_done: the program has ended without an error.
        """
        accepts = is_done and not self._is_explicit
        self._acknowledge_held(AcknowledgeType.ACCEPT if accepts else AcknowledgeType.RELEASE)
        self._waiting.clear()
        self._open.clear()

    def _acknowledge_held(self, kind: AcknowledgeType) -> None:
        for (partition, offset), record in self._held.items():
            self.pending.add(record.batch.node_id, partition, offset, kind)
        self._held.clear()
        self._renewed.clear()
