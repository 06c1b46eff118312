"""Brokers for our clients in the new kinds of group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.clients_trio.group_brokers import KINDS, GroupBrokers


@pytest.fixture(scope="session")
def group_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupBrokers]:
    """Brokers that soon notice who is gone; each starts when the first test needs it."""
    brokers = GroupBrokers(tmp_path_factory.mktemp("groups"))
    yield brokers
    brokers.close()


@pytest.fixture(params=KINDS)
def consumer_groups(request: pytest.FixtureRequest, group_brokers: GroupBrokers) -> Broker:
    """A broker with groups of the consumer protocol."""
    return group_brokers.get(request.param, "group.version")


@pytest.fixture(params=KINDS)
def share_groups(request: pytest.FixtureRequest, group_brokers: GroupBrokers) -> Broker:
    """A broker with share groups, whose locks last three seconds."""
    return group_brokers.get(request.param, "share.version")
