"""A Produce passes a gate before its batches are appended: at once, later, or in part."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.base.deferred import Deferred
from kraftrio.broker.replica.append_gate import GateDecision, OpenGate, Refusal
from kraftrio.broker.security.authorizer import (
    ALLOW_ALL,
    AclOperation,
    Authorizer,
    Resource,
    ResourceType,
)
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.slices.sliced_work import SlicedWork
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.framing import RequestStart
from tests.support.authorizers import Allow
from tests.support.logs import batch
from tests.unit.broker.api.data_context import Handlers
from tests.unit.broker.replica.replica_context import Broker, topic

VERSION = 9
OPEN = GateDecision({}, {})


class Gate:
    """Holds what it is asked about until the test decides."""

    def __init__(self) -> None:
        self.asked: list[Deferred[GateDecision]] = []
        self.topics: list[list[str]] = []

    def admit(
        self, request: ProduceRequest, *, api_version: int, by_id: bool
    ) -> Deferred[GateDecision] | None:
        assert (api_version, by_id) == (VERSION, False)
        self.topics.append([topic.name for topic in request.topic_data])
        self.asked.append(Deferred())
        return self.asked[-1]


class Side:
    """The produce handlers behind a dispatcher, and the answers that came."""

    def __init__(self, partitions: int = 1, authorizer: Authorizer = ALLOW_ALL) -> None:
        self.broker = Broker()
        self.broker.publish(*topic(partitions))
        self.gate = Gate()
        self.broker.replicas.led.gate = self.gate
        self.work = SlicedWork(self.broker.clock.monotonic_ms)
        self.dispatcher = Dispatcher(
            Handlers(self.broker).produces.table(), None, self.work, authorizer=authorizer
        )
        self.answers: dict[str, list[tuple[ErrorCode, int]]] = {}

    def send(self, client: ClientInfo, value: bytes, *, acks: int = 1, partitions: int = 1) -> None:
        """Produce one record to each partition; the answer comes under its value."""
        records = memoryview(batch(value))
        data = [PartitionProduceData(index=i, records=records) for i in range(partitions)]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=data)],
        )
        frame = memoryview(bytearray(encode(request, VERSION)))
        start = RequestStart(ApiKey.PRODUCE, VERSION, 1, None, 0)
        answer = self.dispatcher.handle(frame, start, client)
        if isinstance(answer, Deferred):
            answer.then(lambda encoder: self._note(value, encoder))
        else:
            self._note(value, answer)

    def _note(self, value: bytes, encoder: Any) -> None:
        frame = memoryview(b"".join(bytes(piece) for piece in encoder()))
        if not frame:  # acks=0
            self.answers[value.decode()] = []
            return
        response: ProduceResponse
        response, _ = decode(ProduceResponse, VERSION, frame, 4 + 4 + 1)
        self.answers[value.decode()] = [
            (ErrorCode(part.error_code), part.base_offset)
            for one in response.responses
            for part in one.partition_responses
        ]

    def end(self, index: int = 0) -> int:
        return self.broker.replicas.led.log(TopicPartition("t", index)).log_end_offset


def client() -> ClientInfo:
    return ClientInfo(host="h", port=1, listener_name="L")


async def until(side: Side, *values: str) -> None:
    with trio.fail_after(5):
        while not all(value in side.answers for value in values):
            await trio.lowlevel.checkpoint()


async def test_what_waits_at_the_gate_holds_its_connection_and_no_other() -> None:
    side = Side()
    first, second = client(), client()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.work.run)
        side.send(first, b"a")
        side.send(first, b"b")
        side.send(second, b"c")
        await trio.testing.wait_all_tasks_blocked()
        assert len(side.gate.asked) == 2, "b is behind a"
        assert side.end() == 0 and not side.answers
        side.gate.asked[1].complete(OPEN)
        await until(side, "c")
        assert side.answers == {"c": [(ErrorCode.NONE, 0)]}
        side.gate.asked[0].complete(OPEN)
        await until(side, "a")
        await trio.testing.wait_all_tasks_blocked()
        assert len(side.gate.asked) == 3
        side.gate.asked[2].complete(OPEN)
        await until(side, "b")
        nursery.cancel_scope.cancel()
    assert (side.answers["a"], side.answers["b"]) == ([(ErrorCode.NONE, 1)], [(ErrorCode.NONE, 2)])


@pytest.mark.parametrize("partitions", [2, 300])
async def test_the_gate_may_refuse_some_batches(partitions: int) -> None:
    """Also of a request that is appended in parts, each of which passes it."""
    side = Side(partitions)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.work.run)
        side.send(client(), b"a", partitions=partitions)
        while "a" not in side.answers:
            await trio.testing.wait_all_tasks_blocked()
            for asked in side.gate.asked:
                if not asked.done:
                    refusal = Refusal(ErrorCode.TRANSACTION_ABORTABLE, "why")
                    asked.complete(GateDecision({("t", 1): refusal}, {}))
        nursery.cancel_scope.cancel()
    codes = [code for code, _ in side.answers["a"]]
    # Produce 9 does not know that code, but the gate's word is passed on as it is.
    assert codes == [
        ErrorCode.TRANSACTION_ABORTABLE if index == 1 else ErrorCode.NONE
        for index in range(partitions)
    ]
    assert (side.end(0), side.end(1)) == (1, 0)


async def test_acks_0_waits_at_the_gate_too() -> None:
    side = Side()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.work.run)
        side.send(client(), b"a", acks=0)
        await trio.testing.wait_all_tasks_blocked()
        assert side.end() == 0
        side.gate.asked[0].complete(OPEN)
        await until(side, "a")
        nursery.cancel_scope.cancel()
    assert side.end() == 1 and side.answers == {"a": []}


def test_the_gate_of_a_broker_without_transactions_is_open() -> None:
    gate = Broker().replicas.led.gate
    assert isinstance(gate, OpenGate)
    assert gate.admit(ProduceRequest(transactional_id="mine"), api_version=12, by_id=False) is None


async def test_a_right_that_was_revoked_at_the_gate_is_gone() -> None:
    """Nothing is written by it; and what was not permitted from the start never comes there."""
    authorizer = Allow({(AclOperation.WRITE, Resource(ResourceType.TOPIC, "t"))})
    side = Side(authorizer=authorizer)
    refused = [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.work.run)
        side.send(client(), b"a")
        await trio.testing.wait_all_tasks_blocked()
        authorizer.allowed.clear()
        side.send(client(), b"b")
        await trio.testing.wait_all_tasks_blocked()
        for asked in side.gate.asked:
            asked.complete(OPEN)
        await until(side, "a", "b")
        nursery.cancel_scope.cancel()
    assert side.answers == {"a": refused, "b": refused}
    assert side.gate.topics == [["t"], []]
    assert side.end() == 0
