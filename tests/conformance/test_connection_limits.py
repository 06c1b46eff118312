"""Limits of connections, set while a broker runs: of all, of a listener, of an address."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import ApiVersionsRequest
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.raw_client import ConnectionClosed, RawClient

BROKER = 4
LISTENER = "listener.name.plaintext."
DEADLINE_S = 10.0
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")

Open = Callable[[], RawClient]


@pytest.fixture
def connect(make_broker: Callable[..., Broker]) -> Iterator[Open]:
    """Open connections to a broker of the test's own."""
    address = make_broker().address
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(RawClient(address))


def alter(client: RawClient, name: str, value: str) -> None:
    resource = IncrementalAlterConfigsResource(
        resource_type=BROKER,
        resource_name="",
        configs=[IncrementalAlterableConfig(name=name, config_operation=0, value=value)],
    )
    (answer,) = client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)


def is_served(client: RawClient) -> bool:
    """Whether a connection is served within half a second; False: it waits, or was closed."""
    try:
        number = client.send(HELLO, 3)
        client.receive(HELLO, 3, number, timeout_s=0.5)
    except (TimeoutError, ConnectionClosed, OSError):
        return False
    return True


def wait_limited(connect: Open, *, limited: bool) -> RawClient:
    """Open connections until one is limited, or is not; the setting may take a moment."""
    deadline = time.monotonic() + DEADLINE_S
    while is_served(client := connect()) is limited:
        client.close()
        assert time.monotonic() < deadline
    return client


@pytest.mark.parametrize("name", ["max.connections", f"{LISTENER}max.connections"])
def test_a_connection_above_the_limit_waits_for_room(connect: Open, name: str) -> None:
    admin, second = connect(), connect()
    assert is_served(second)
    alter(admin, name, "2")
    waiting = wait_limited(connect, limited=True)
    assert is_served(second), "who is there already stays"
    second.close()
    waiting.receive(HELLO, 3, 1, timeout_s=DEADLINE_S)
    alter(admin, name, "100")
    wait_limited(connect, limited=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max.connections.per.ip", "2"), ("max.connections.per.ip.overrides", "127.0.0.1:2")],
)
def test_an_address_with_too_many_is_turned_away(connect: Open, name: str, value: str) -> None:
    admin, second = connect(), connect()
    assert is_served(second)
    alter(admin, name, value)
    wait_limited(connect, limited=True)
    second.close()
    wait_limited(connect, limited=False)
