"""franz-go as it is: producers, groups with its cooperative assignor, the admin (kadm)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.driven import DrivenAdmin, DrivenClient, Driver
from tests.conformance.clients.install import go_program

pytestmark = scenarios.MARKS

Names = Callable[[], str]


@pytest.fixture
def driver(bootstrap: str) -> Iterator[Driver]:
    """franz-go's producers and admin in a process."""
    with closing(Driver([str(go_program("franz"))], bootstrap)) as made:
        yield made


def test_group(driver: Driver, unique_topic: Names, unique_group: Names) -> None:
    """A topic's records through a group whose members come and go."""
    scenarios.check_group(DrivenClient(driver), unique_topic(), unique_group())


def test_restart(
    make_broker: Callable[..., Broker], unique_topic: Names, unique_group: Names
) -> None:
    """Members go on over a stop and a crash of the broker."""
    command = [str(go_program("franz"))]
    broker = make_broker()
    with closing(Driver(command, broker.address)) as driver:
        scenarios.check_restart(DrivenClient(driver), broker, unique_topic(), unique_group())


def test_topic_admin(driver: Driver, unique_topic: Names) -> None:
    """Topics and their settings through the admin."""
    scenarios.check_topic_admin(DrivenAdmin(driver), unique_topic())


def test_offsets_admin(driver: Driver, unique_topic: Names) -> None:
    """Offsets and the deletion of records through the admin."""
    scenarios.check_offsets_admin(DrivenAdmin(driver), DrivenClient(driver), unique_topic())


def test_group_admin(driver: Driver, unique_topic: Names, unique_group: Names) -> None:
    """Groups through the admin."""
    client = DrivenClient(driver)
    scenarios.check_group_admin(DrivenAdmin(driver), client, unique_topic(), unique_group())
