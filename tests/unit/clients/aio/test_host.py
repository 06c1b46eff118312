"""One client in the clients' thread: how it is opened, called and closed from asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel

from kraftrio.clients.aio.host import ClientHost
from kraftrio.clients.errors import ClosedError, TimedOutError
from tests.unit.clients.aio.threads import client_threads


class Client:
    """A client of Trio's with one task beside; it notes what happens to it."""

    def __init__(self, *, crash: bool = False, enter: Callable[[], Any] | None = None) -> None:
        self.events: list[str] = []
        self.waiting = threading.Event()
        self._crash = crash
        self._enter = enter or trio.lowlevel.checkpoint

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            try:
                await self._enter()
                nursery.start_soon(self._run)
                yield
                self.events.append("left in good order")
            except Exception as error:
                failure = error  # raised below, or the nursery would wrap it
                self.events.append(f"left by {type(error).__name__}")
            except trio.Cancelled:
                self.events.append("left by Cancelled")
                raise
            finally:
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _run(self) -> None:
        if self._crash:
            raise TimedOutError("the client's own task failed")
        await trio.sleep_forever()

    async def wait(self) -> None:
        """Wait for what never comes."""
        try:
            self.waiting.set()
            await trio.sleep_forever()
        except trio.Cancelled:
            self.events.append("call cancelled")
            raise


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - another thread makes it hold
            await asyncio.sleep(0)


def test_calls_run_in_the_thread_and_return_or_raise() -> None:
    async def main() -> None:
        client, host = Client(), ClientHost("Client")
        await host.open(client.opened())

        async def name() -> str:
            await trio.lowlevel.checkpoint()
            return threading.current_thread().name

        async def fail() -> None:
            raise ValueError("no")

        assert await host.call(name) == "kraftrio-clients"
        assert host.call_sync(lambda: host.is_here) and not host.is_here
        with pytest.raises(ValueError, match="no"):
            await host.call(fail)
        await host.close(None)
        assert client.events == ["left in good order"]
        with pytest.raises(ClosedError, match="the Client is not open"):
            await host.call(name)
        assert host.call_sync(lambda: 5) == 5

    asyncio.run(main())
    assert not client_threads()


def test_an_exception_of_the_body_goes_to_the_client() -> None:
    """It is the program's to raise: closing does not raise it again."""

    async def main() -> None:
        client, host = Client(), ClientHost("Client")
        await host.open(client.opened())
        await host.close(KeyError("k"))
        assert client.events == ["left by KeyError"]

    asyncio.run(main())


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt()])
def test_what_is_no_exception_cancels_the_client(error: BaseException) -> None:
    async def main() -> None:
        client, host = Client(), ClientHost("Client")
        await host.open(client.opened())
        await host.close(error)
        assert client.events == ["left by Cancelled"]

    asyncio.run(main())


def test_a_cancelled_task_cancels_its_call_and_waits_for_its_end() -> None:
    async def main() -> None:
        client, host = Client(), ClientHost("Client")
        await host.open(client.opened())
        task = asyncio.create_task(host.call(client.wait))
        await until(client.waiting.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.events == ["call cancelled"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await host.call(client.wait)
        await host.close(None)

    asyncio.run(main())


def test_a_result_that_no_caller_gets_is_given_back() -> None:
    """The call had ended when its task was cancelled."""

    async def main() -> None:
        client, host = Client(), ClientHost("Client")
        await host.open(client.opened())
        given: list[int] = []
        cancelled, returned = trio.Event(), threading.Event()

        async def take() -> int:
            with trio.CancelScope(shield=True):
                returned.set()
                await cancelled.wait()
            return 7

        task = asyncio.create_task(host.call(take, given.append))
        await until(returned.is_set)
        task.cancel()
        await asyncio.sleep(0)
        host.soon(cancelled.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert given == [7]
        await host.close(None)

    asyncio.run(main())


def test_closing_ends_the_calls_of_other_tasks() -> None:
    async def main() -> None:
        client, host = Client(), ClientHost("Client")
        await host.open(client.opened())
        task = asyncio.create_task(host.call(client.wait))
        await until(client.waiting.is_set)
        await host.close(None)
        with pytest.raises(ClosedError):
            await task
        assert client.events == ["call cancelled", "left in good order"]

    asyncio.run(main())


def test_a_client_that_fails_ends_its_calls_and_says_so_when_it_is_left() -> None:
    async def main() -> None:
        client, host = Client(crash=True), ClientHost("Client")
        await host.open(client.opened())
        with pytest.raises(ClosedError):
            await host.call(trio.sleep_forever)
        with pytest.raises(BaseExceptionGroup) as raised:
            await host.close(None)
        assert raised.group_contains(TimedOutError, match="own task failed")

    asyncio.run(main())
    assert not client_threads()


def test_a_client_that_cannot_be_entered_leaves_nothing_behind() -> None:
    async def fail() -> None:
        raise TimedOutError("no broker")

    async def enter(client: Client) -> None:
        async with asyncio.timeout(0.05):
            await ClientHost("Client").open(client.opened())

    failing, slow = Client(enter=fail), Client(enter=trio.sleep_forever)
    with pytest.raises(TimedOutError, match="no broker"):
        asyncio.run(enter(failing))
    assert failing.events == ["left by TimedOutError"] and not client_threads()
    with pytest.raises(TimeoutError):
        asyncio.run(enter(slow))
    assert slow.events == ["left by Cancelled"] and not client_threads()


def test_an_unclosed_client_ends_with_its_event_loop() -> None:
    client = Client()
    loop = asyncio.new_event_loop()

    async def forget() -> None:
        await ClientHost("Client").open(client.opened())

    loop.run_until_complete(forget())
    threads = [each for each in threading.enumerate() if each.name == "kraftrio-clients"]
    loop.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert client.events == ["left by Cancelled"]


def test_the_program_is_called_back_in_its_event_loop() -> None:
    async def main() -> None:
        client, host = Client(), ClientHost("Client")
        await host.open(client.opened())

        async def later() -> str:
            await asyncio.sleep(0)
            return threading.current_thread().name

        async def fail() -> str:
            raise KeyError("k")

        name = threading.current_thread().name
        assert await host.call(lambda: host.call_back(later)) == name
        assert await host.call(lambda: host.call_back(lambda: 4)) == 4
        with pytest.raises(KeyError):
            await host.call(lambda: host.call_back(fail))
        await host.close(None)

    asyncio.run(main())


def test_another_event_loop_is_refused_in_one_sentence() -> None:
    async def opened() -> ClientHost:
        host = ClientHost("Client")
        await host.open(Client().opened())
        return host

    async def call(host: ClientHost) -> None:
        await host.call(trio.lowlevel.checkpoint)

    with pytest.raises(RuntimeError, match=r"under Trio use kraftrio.Client"):
        ClientHost("Client")
    loop = asyncio.new_event_loop()
    host = loop.run_until_complete(opened())
    with pytest.raises(RuntimeError, match="was opened in another event loop"):
        asyncio.run(call(host))
    loop.run_until_complete(host.close(None))
    loop.close()
