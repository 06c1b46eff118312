"""Fixtures of the raw cases: connections to the shared broker, and topics made without a JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.cases.calls import create_topic
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import wait_for_transactions


@pytest.fixture
def connect(bootstrap: str) -> Iterator[Callable[[], RawClient]]:
    """Open connections to the shared broker; they are closed with the test."""
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(RawClient(bootstrap))


@pytest.fixture
def client(connect: Callable[[], RawClient]) -> RawClient:
    """A connection to the shared broker."""
    return connect()


@pytest.fixture
def new_topic(client: RawClient, unique_topic: Callable[[], str]) -> Callable[..., str]:
    """Create topics: new_topic(partitions=3, cleanup_policy="compact")."""
    return lambda **options: create_topic(client, unique_topic(), **options)


@pytest.fixture(scope="session")
def transaction_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that aborts at once what has timed out, for all cases of transactions."""
    shared = start_broker(
        tmp_path_factory.mktemp("transactions"),
        transaction_abort_timed_out_transaction_cleanup_interval_ms=200,
    )
    with RawClient(shared.address) as client:
        wait_for_transactions(client)
    yield shared
    shared.close()
