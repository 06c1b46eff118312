"""What the body of `async with` raises comes out of every client as itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from kraftrio import Admin, Consumer, Producer, ShareConsumer

NOBODY = "127.0.0.1:1"
Client = Callable[[], AbstractAsyncContextManager[object]]

CLIENTS: list[Client] = [
    lambda: Producer(NOBODY),
    lambda: Consumer(NOBODY, group_id="g"),
    lambda: ShareConsumer(NOBODY, group_id="g"),
    lambda: Admin(NOBODY),
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
async def test_the_body_s_own(client: Client, kind: type[BaseException]) -> None:
    """Not in a group, and the very object."""
    raised = kind("the body's own")
    with pytest.raises(kind) as caught:
        async with client():
            raise raised
    assert caught.value is raised
