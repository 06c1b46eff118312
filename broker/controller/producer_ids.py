"""Producer ids for InitProducerId: handed out from blocks that the controller allocates durably.

An id is never given twice, also after a crash: a block is used only by the broker process that got
it, and what is left of it at a stop is lost (as in Kafka, KIP-730).  The next block is asked for
while the current one still has some ids, so that a client rarely waits.

Called by the handlers of InitProducerId and EndTxn, and by transactional shards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kraftrio.base.deferred import Deferred
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse

_PREFETCH_BELOW = 100

AllocateBlock = Callable[[AllocateProducerIdsRequest], Deferred[AllocateProducerIdsResponse]]


class ProducerIdManager:
    """Gives out producer ids.

    Args:
        allocate: asks the active controller for a block.
        broker_epoch: the epoch of this broker's registration, as the controller checks it.
    """

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], allocate: AllocateBlock
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._next_block: tuple[int, int] | None = None
        self._is_requested = False
        self._waiting: deque[Deferred[tuple[ErrorCode, int]]] = deque()
        self._waiting_for_block: list[Deferred[ErrorCode]] = []

    def next_producer_id(self) -> Deferred[tuple[ErrorCode, int]]:
        """The next id, with NONE; or an error to pass on to the client, with -1."""
        result: Deferred[tuple[ErrorCode, int]] = Deferred()
        self._waiting.append(result)
        self._serve()
        return result

    def take_producer_id(self) -> int | None:
        """The next id, if there is one at hand; None: `when_at_hand` says when to ask again."""
        taken = self.next_producer_id() if self._has_any else None
        return None if taken is None else taken.value[1]

    def when_at_hand(self) -> Deferred[ErrorCode]:
        """NONE once there are ids; or an error to pass on to the client."""
        if self._has_any:
            return Deferred.completed(ErrorCode.NONE)
        waiting: Deferred[ErrorCode] = Deferred()
        self._waiting_for_block.append(waiting)
        self._serve()
        return waiting

    @property
    def _has_any(self) -> bool:
        return self._next < self._end or self._next_block is not None

    def _serve(self) -> None:
        while self._waiting:
            if self._next == self._end:
                if self._next_block is None:
                    break
                self._next, self._end = self._next_block
                self._next_block = None
            producer_id = self._next
            self._next += 1
            self._waiting.popleft().complete((ErrorCode.NONE, producer_id))
        if self._next_block is None and self._end - self._next < _PREFETCH_BELOW:
            self._request_block()

    def _request_block(self) -> None:
        if self._is_requested:
            return
        self._is_requested = True
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        self._allocate(request).then(self._on_block)

    def _on_block(self, response: AllocateProducerIdsResponse) -> None:
        self._is_requested = False
        if response.error_code == ErrorCode.NONE:
            start = response.producer_id_start
            self._next_block = (start, start + response.producer_id_len)
            self._serve()
            self._complete_waiting(ErrorCode.NONE)
            return
        # The client retries; asking again at once would only spin.
        waiting, self._waiting = self._waiting, deque()
        for result in waiting:
            result.complete((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1))
        self._complete_waiting(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _complete_waiting(self, code: ErrorCode) -> None:
        """Answer those that wait for an id; a caller that takes none in time asks again."""
        waiting, self._waiting_for_block = self._waiting_for_block, []
        for one in waiting:
            one.complete(code)
