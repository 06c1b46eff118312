"""What still counts when a connection ends: answers that are there, requests that were taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.net.connection import (
    Connection,
    ConnectionLost,
    Reply,
    RequestTimedOut,
    open_connection,
)
from kraftrio.wire.messages.cluster import MetadataRequest
from kraftrio.wire.messages.data import ProduceRequest, TopicProduceData
from tests.unit.net.test_connection import VERSION, answer, closes_with, metadata


class Line:
    """A socket and its network by hand: what has arrived, and how sending and receiving end."""

    def __init__(self) -> None:
        self.inbox = bytearray()
        self.sent = bytearray()
        self.takes = 1 << 30  # bytes
        self.send_error: OSError | None = None
        self.readable = trio.Event()

    # The network

    async def connect(self, host: str, port: int) -> Line:
        await trio.lowlevel.checkpoint()
        return self

    async def wait_readable(self, sock: Line) -> None:
        await self.readable.wait()
        self.readable = trio.Event()

    async def wait_writable(self, sock: Line) -> None:
        await trio.sleep_forever()

    def notify_closing(self, sock: Line) -> None:
        self.readable.set()

    # The socket

    def recvmsg_into(self, buffers: list[Any]) -> tuple[int, Any, int, Any]:
        if not self.inbox:
            raise BlockingIOError
        view = memoryview(buffers[0])
        count = min(len(view), len(self.inbox))
        view[:count] = self.inbox[:count]
        del self.inbox[:count]
        return count, [], 0, None

    def send(self, data: Any) -> int:
        if self.send_error is not None:
            raise self.send_error
        count = min(len(data), self.takes)
        if not count:
            raise BlockingIOError
        self.takes -= count
        self.sent += memoryview(data)[:count]
        return count

    def sendmsg(self, buffers: list[Any]) -> int:
        return self.send(b"".join(bytes(buffer) for buffer in buffers))

    def close(self) -> None:
        self.readable.set()


@asynccontextmanager
async def on_a_line() -> AsyncIterator[tuple[Connection, Line]]:
    line = Line()
    network: Any = line
    with trio.fail_after(100):
        async with open_connection(
            network, "peer", 1, client_id="tester", connect_timeout_s=5
        ) as connection:
            yield connection, line


async def test_answers_that_are_there_count_when_a_later_request_cannot_be_sent() -> None:
    """A broker that answers and closes: the next request fails, those answered have not."""
    async with on_a_line() as (connection, line):
        replies = [connection.send(MetadataRequest(), VERSION, at_once=True) for _ in range(2)]
        line.inbox += answer(0, metadata(7)) + answer(1, metadata(8))
        line.send_error = BrokenPipeError("broken pipe")
        third = connection.send(MetadataRequest(), VERSION, at_once=True)
        assert [reply.value().controller_id for reply in replies] == [7, 8]
        with closes_with("sending failed: broken pipe"):
            third.value()
        assert connection.is_closed


async def test_a_callback_that_cannot_send_leaves_the_answers_after_it() -> None:
    """Sending from within the delivery of one answer fails: the answer behind it counts."""
    async with on_a_line() as (connection, line):
        line.send_error = None
        first = connection.send(MetadataRequest(), VERSION, at_once=True)
        second = connection.send(MetadataRequest(), VERSION, at_once=True)
        more: list[Reply] = []
        first.then(lambda _: more.append(connection.send(MetadataRequest(), VERSION, at_once=True)))
        line.inbox += answer(0, metadata(7)) + answer(1, metadata(8))
        line.send_error = ConnectionResetError("reset")
        line.readable.set()
        assert (await second.wait()).controller_id == 8
        with closes_with("sending failed: reset"):
            await more[0].wait()


async def test_answers_that_came_while_the_process_stood_still_came_in_time(
    mock_clock: trio.testing.MockClock,
) -> None:
    """A deadline that has passed before anybody could look at the socket ends nothing."""
    async with on_a_line() as (connection, line):
        early = connection.send(MetadataRequest(), VERSION, 1.0, at_once=True)
        late = connection.send(MetadataRequest(), VERSION, 50.0, at_once=True)
        await trio.testing.wait_all_tasks_blocked()
        line.inbox += answer(0, metadata(7))
        mock_clock.jump(5.0)
        await trio.testing.wait_all_tasks_blocked()
        assert early.value().controller_id == 7
        assert not late.done
        assert not connection.is_closed
        mock_clock.jump(50.0)
        with pytest.raises(RequestTimedOut):
            await late.wait()


async def test_the_outcome_of_a_request_without_an_answer_is_reported() -> None:
    """Taken to its last byte, or lost before: one call for each request."""
    reported: list[tuple[int, ConnectionLost | None]] = []
    async with on_a_line() as (connection, line):
        request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t" * 100)])
        connection.send_oneway(request, 9, lambda lost: reported.append((0, lost)), at_once=True)
        size = len(line.sent)
        line.takes = size + size // 2
        for number in (1, 2, 3):
            connection.send_oneway(
                request,
                9,
                partial(lambda number, lost: reported.append((number, lost)), number),
                at_once=True,
            )
        assert reported == [(0, None), (1, None)]
        line.send_error = ConnectionResetError("reset")
        connection.send_oneway(request, 9, lambda lost: reported.append((4, lost)), at_once=True)
        assert [number for number, _ in reported] == [0, 1, 2, 3, 4]
        assert all(isinstance(lost, ConnectionLost) for _, lost in reported[2:])
