"""When the batches of each partition may be sent: at once, after lingering, after a back-off.

Owns, for each leader, the partitions that something may be sent to, and the times at which others
join them. A partition is listed once, however many batches wait for it.

Sans-IO: time comes in as milliseconds. Called by: `accumulator`, `outcomes`; read by `producer`
and `sender`.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf

from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.queues import NO_LEADER, PartitionQueue


class SendSchedule:
    """What may be sent where, and from when on."""

    def __init__(self) -> None:
        self.wants_sender = False  # something was added since `nodes` was called last
        self.closed_bytes = 0  # of all batches that were closed
        self._sendable: dict[int, dict[PartitionQueue, None]] = {}  # by leader
        self._numbers = count()  # for the order of what is due at the same time
        self._lingering: list[tuple[float, int, PartitionQueue, Batch]] = []
        self._backing_off: list[tuple[float, int, PartitionQueue, Batch]] = []

    # -- what may be sent -----------------------------------------------------------------------

    def add(self, queue: PartitionQueue) -> None:
        """Something may be sent to this partition now."""
        self._sendable.setdefault(queue.leader_id, {})[queue] = None
        self.wants_sender = True

    def close(self, queue: PartitionQueue) -> None:
        """Close the open batch of a partition to further records: it may be sent now."""
        batch = queue.open
        if batch is None:
            return
        queue.open = None
        batch.is_closed = True
        batch.record_count = len(batch.values)
        self.closed_bytes += batch.size_bytes
        if queue is queue.topic_queues.sticky:
            queue.topic_queues.sticky_bytes += batch.size_bytes
        self.add(queue)

    def queues(self, node_id: int) -> dict[PartitionQueue, None] | None:
        """The partitions of a leader that something may be sent to; the caller removes them."""
        return self._sendable.get(node_id)

    def nodes(self) -> list[int]:
        """Return the leaders that something may be sent to."""
        self.wants_sender = False
        return [node_id for node_id, queues in self._sendable.items() if queues and node_id >= 0]

    @property
    def lacks_leader(self) -> bool:
        """Whether something could be sent if its partition's leader were known."""
        return bool(self._sendable.get(NO_LEADER))

    def leaders_changed(self) -> None:
        """List the partitions by their present leaders; back-offs end where the leader is new."""
        waiting = [queue for queues in self._sendable.values() for queue in queues]
        self._sendable.clear()
        for queue in waiting:
            self.add(queue)
        for _, _, queue, batch in self._backing_off:
            if not batch.is_done and batch.leader_epoch < queue.leader_epoch:
                self.add(queue)

    # -- what waits -----------------------------------------------------------------------------

    def linger(self, queue: PartitionQueue, batch: Batch, due_ms: float) -> None:
        """Let an open batch wait until then for more records."""
        heappush(self._lingering, (due_ms, next(self._numbers), queue, batch))

    def back_off(self, queue: PartitionQueue, batch: Batch) -> None:
        """List the partition of a failed batch again at the batch's `retry_at_ms`."""
        heappush(self._backing_off, (batch.retry_at_ms, next(self._numbers), queue, batch))

    def end_lingering(self, now_ms: float) -> list[PartitionQueue]:
        """Return the partitions whose open batch has waited long enough."""
        due: list[PartitionQueue] = []
        lingering = self._lingering
        # Batches that were filled before stay in the heap until they are due: else each new batch
        # would be the only one, and wake the sender.
        while lingering and lingering[0][0] <= now_ms:
            _, _, queue, batch = heappop(lingering)
            if not batch.is_closed:
                due.append(queue)
        return due

    def end_back_offs(self, now_ms: float) -> None:
        """Let what failed be sent again if its back-off is over."""
        backing_off = self._backing_off
        while backing_off and (backing_off[0][0] <= now_ms or backing_off[0][3].is_done):
            _, _, queue, batch = heappop(backing_off)
            if not batch.is_done:
                self.add(queue)

    @property
    def next_due_ms(self) -> float:
        """When the next lingering or back-off ends; `drain` may add an earlier one."""
        next_ms = self._lingering[0][0] if self._lingering else inf
        return min(next_ms, self._backing_off[0][0]) if self._backing_off else next_ms
