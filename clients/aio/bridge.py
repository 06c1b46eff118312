"""Classes of Trio's clients whose calls asyncio may make: each runs in the clients' thread.

`runs_in_thread` makes such a class of a subclass that says nothing but what is different there. So
names, signatures and documentation are those of Trio's client, for a reader as for a type checker,
and what is added to it is here, too. A method that waits runs as a call of the host; one that does
not, and a property, is run there while the event loop waits, for some ten microseconds.

What returns something to be awaited or iterated over later must be written out in the subclass:
that would be Trio's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from types import TracebackType
from typing import Any, TypeVar

from kraftrio.clients.aio.host import ClientHost
from kraftrio.clients.errors import ClosedError

C = TypeVar("C")


class _OfTrio(AbstractAsyncContextManager[Any]):
    """A client's own way of being entered and left."""

    def __init__(self, base: type, client: Any) -> None:
        self._base: Any = base
        self._client = client

    async def __aenter__(self) -> Any:
        return await self._base.__aenter__(self._client)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._base.__aexit__(self._client, kind, error, traceback)


def client_of_asyncio(cls: type[C]) -> type[C]:
    """Have a subclass of a Trio client opened, called and closed by asyncio.

    It has `_host`, None until it is opened, and `_on_host`, called with the host before that.
    """
    base = cls.__mro__[1]

    async def enter(self: Any) -> Any:
        if self._host is not None:
            raise RuntimeError(f"a {cls.__name__} is entered once: make another one")
        host = ClientHost(cls.__name__)
        self._on_host(host)
        self._host = host
        await host.open(_OfTrio(base, self))
        return self

    async def leave(
        self: Any,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._host.close(error)

    made: Any = cls
    made.__aenter__, made.__aexit__ = enter, leave
    return runs_in_thread(cls)


def part_of_client(base: type, host: ClientHost, *args: Any) -> Any:
    """Return a part of a client, made with these arguments, that is called by asyncio."""
    made: Any = runs_in_thread(type(base.__name__, (base,), {"_host": host}))
    return made(*args)


def runs_in_thread(cls: type[C]) -> type[C]:
    """Have every public method and property of the base class run in the thread of `_host`.

    Raises:
        TypeError: one would return something that only Trio can wait for.
    """
    for name, member in inspect.getmembers_static(cls.__mro__[1]):
        if name.startswith("_") or name in vars(cls):
            continue
        if inspect.iscoroutinefunction(member):
            setattr(cls, name, _waiting(member))
        elif inspect.isfunction(member):
            returned = str(inspect.signature(member).return_annotation)
            if re.search("Async|Awaitable|Coroutine", returned):
                raise TypeError(f"{cls.__name__}.{name} must be written out: it returns {returned}")
            setattr(cls, name, _prompt(member))
        elif isinstance(member, property):
            assert member.fget is not None
            setter = None if member.fset is None else _prompt(member.fset)
            setattr(cls, name, property(_prompt(member.fget), setter, doc=member.__doc__))
    return cls


def _waiting(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        host = opened(self)
        if host.is_here:
            return await method(self, *args, **kwargs)
        return await host.call(partial(method, self, *args, **kwargs))

    return call


def _prompt(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._host is None:  # then the client's state is nobody else's
            return method(self, *args, **kwargs)
        return self._host.call_sync(partial(method, self, *args, **kwargs))

    return call


def opened(client: Any) -> ClientHost:
    """Return the host of a client.

    Raises:
        ClosedError: it was not opened.
    """
    host: ClientHost | None = client._host
    if host is None:
        name = type(client).__name__
        raise ClosedError(f"the {name} is not open: enter it with `async with`")
    return host
