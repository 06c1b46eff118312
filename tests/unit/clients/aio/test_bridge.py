"""The clients for asyncio are Trio's: the same names and signatures, every call in the thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kraftrio
import kraftrio.asyncio
from kraftrio.clients.aio.bridge import runs_in_thread
from kraftrio.clients.errors import ClosedError

CLIENTS = ("Admin", "Consumer", "Producer", "ShareConsumer")
PARTS = (
    "acls",
    "delegation_tokens",
    "quotas",
    "scram_users",
    "share_groups",
    "streams_groups",
    "transactions",
)

OF_EITHER_LOOP = {"send_and_wait"}  # they await other calls, and nothing of Trio's


def public(cls: type) -> dict[str, Any]:
    members = dict(inspect.getmembers_static(cls))
    return {name: each for name, each in members.items() if not name.startswith("_")}


@pytest.mark.parametrize("name", CLIENTS)
def test_both_apis_are_equal(name: str) -> None:
    """What is added to a client of Trio's is in that of asyncio, with the same arguments."""
    ours, trios = getattr(kraftrio.asyncio, name), getattr(kraftrio, name)
    assert public(ours).keys() == public(trios).keys()
    assert inspect.signature(ours) == inspect.signature(trios)
    for each, member in public(trios).items():
        mine = public(ours)[each]
        assert (mine is not member) == (each not in OF_EITHER_LOOP), f"{name}.{each}"
        if isinstance(member, property):
            assert isinstance(mine, property) and (mine.fset is None) == (member.fset is None)
        else:
            arguments = inspect.signature(member).parameters
            assert inspect.signature(mine).parameters.keys() == arguments.keys(), each
            assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(member)


def test_no_method_returns_what_only_trio_can_wait_for() -> None:
    class Base:
        def records(self) -> AsyncIterator[int]:
            raise NotImplementedError

    with pytest.raises(TypeError, match=r"Sub\.records must be written out"):

        @runs_in_thread
        class Sub(Base):
            pass


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_of_asyncio_under_trio_says_so(name: str) -> None:
    client = getattr(kraftrio.asyncio, name)("localhost:9", **group(name))
    with pytest.raises(RuntimeError, match=rf"under Trio use kraftrio\.{name}$"):
        async with client:
            pass


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_trio_under_asyncio_says_so(name: str) -> None:
    client = getattr(kraftrio, name)("localhost:9", **group(name))

    async def main() -> None:
        async with client:
            pass

    with pytest.raises(RuntimeError, match=r"under asyncio use those of kraftrio\.asyncio$"):
        asyncio.run(main())


def group(name: str) -> dict[str, str]:
    return {"group_id": "g"} if name == "ShareConsumer" else {}


def test_a_client_that_is_not_open_says_so() -> None:
    """Also parts of the admin client; what asks nobody answers all the same."""
    producer = kraftrio.asyncio.Producer("localhost:9")
    with pytest.raises(ClosedError, match=r"the Producer is not open: enter it with"):
        producer.send("t", b"v").send(None)
    with pytest.raises(ClosedError, match=r"the Producer is not open"):
        producer.flush().send(None)
    assert producer.buffered_bytes == 0
    admin = kraftrio.asyncio.Admin("localhost:9")
    for part in PARTS:
        assert not inspect.iscoroutinefunction(getattr(admin, part))
