"""Segmentio's kafka-go as it is: writers and groups. Its versions of the APIs are old ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.driven import DrivenClient, Driver
from tests.conformance.clients.install import go_program
from tests.conformance.clients.records import Abilities

pytestmark = scenarios.MARKS

CAN = Abilities(empty_values=False)  # it reads an empty value and a null alike

Names = Callable[[], str]


def test_group(bootstrap: str, unique_topic: Names, unique_group: Names) -> None:
    """A topic's records through a group whose members come and go."""
    with closing(Driver([str(go_program("kafkago"))], bootstrap)) as driver:
        scenarios.check_group(DrivenClient(driver, can=CAN), unique_topic(), unique_group())


def test_restart(
    make_broker: Callable[..., Broker], unique_topic: Names, unique_group: Names
) -> None:
    """Members go on over a stop and a crash of the broker."""
    program = go_program("kafkago")
    broker = make_broker()
    with closing(Driver([str(program)], broker.address)) as driver:
        scenarios.check_restart(
            DrivenClient(driver, can=CAN), broker, unique_topic(), unique_group()
        )
