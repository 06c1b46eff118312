"""Producer ids from blocks that the controller allocates: never one twice, blocks ahead of need."""

from __future__ import annotations

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.controller.producer_ids import ProducerIdManager
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse


class Blocks:
    """A controller that allocates blocks of 1000 when the test says so."""

    def __init__(self) -> None:
        self.requests: list[AllocateProducerIdsRequest] = []
        self.waiting: list[Deferred[AllocateProducerIdsResponse]] = []
        self.ids = ProducerIdManager(1, lambda: 7, self.allocate)
        self._next = 0

    def allocate(
        self, request: AllocateProducerIdsRequest
    ) -> Deferred[AllocateProducerIdsResponse]:
        self.requests.append(request)
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def grant(self) -> None:
        start, self._next = self._next, self._next + 1000
        self.waiting.pop(0).complete(
            AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=1000)
        )


def test_no_id_is_given_twice_and_no_request_waits_while_there_are_some() -> None:
    """Across the end of a block, too: the next one is asked for before it is needed."""
    blocks = Blocks()
    first = blocks.ids.next_producer_id()
    assert not first.done
    blocks.grant()
    given = [first, *(blocks.ids.next_producer_id() for _ in range(900))]
    assert len(blocks.requests) == 2, "fewer than 100 are left"
    blocks.grant()
    given += [blocks.ids.next_producer_id() for _ in range(900)]
    assert [result.value for result in given] == [(ErrorCode.NONE, n) for n in range(1801)]
    assert len(blocks.requests) == 2
    assert {(r.broker_id, r.broker_epoch) for r in blocks.requests} == {(1, 7)}


def test_one_block_is_asked_for_at_a_time() -> None:
    """Requests that come meanwhile wait for it, in order."""
    blocks = Blocks()
    waiting = [blocks.ids.next_producer_id() for _ in range(5)]
    assert len(blocks.waiting) == 1
    blocks.grant()
    assert [result.value[1] for result in waiting] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT]
)
def test_a_refused_block_is_an_error_that_clients_retry(code: ErrorCode) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS for everyone who waits, never a timeout, which would end a
    producer (KAFKA-14417); the next one asks again."""
    blocks = Blocks()
    waiting = [blocks.ids.next_producer_id() for _ in range(2)]
    refusal = AllocateProducerIdsResponse(error_code=code)
    blocks.waiting.pop(0).complete(refusal)
    assert [result.value for result in waiting] == [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    ] * 2
    again = blocks.ids.next_producer_id()
    blocks.grant()
    assert again.value == (ErrorCode.NONE, 0)
