"""Answers of the coordinator beside Apache Kafka's, for every state, request and epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.kraft_meta.metadata.image import GROUP_VERSION
from kraftrio.wire.codec.message import decode, encode
from tests.support.golden import check
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn
from tests.unit.broker.coordinator.groups.consumer.consumer_script import ConsumerScript

TRACES = Path(__file__).resolve().parent / "traces"


class BrokerScript(ConsumerScript):
    """A broker's handlers over a log in memory; requests go through the wire's bytes."""

    topics = {"t": "topic-t", "u": "topic-u"}
    topic_ids = {"t": b"t" * 16, "u": b"u" * 16}

    def __init__(self) -> None:
        super().__init__()
        self._broker = BrokerStandIn()
        self._broker.metadata.set_feature(GROUP_VERSION, 1)
        for name, count in (("t", 4), ("u", 1)):
            self._broker.metadata.add_topic(self.topics[name], self.topic_ids[name], count)

    def ask(self, request: Any, version: int) -> Any:
        received, _ = decode(type(request), version, encode(request, version))
        response = self._broker.call(received, version)
        while isinstance(response, Deferred):
            if not response.done:
                self._broker.timers.advance(1)
            else:
                response = response.value
        answered: Any = type(response)
        return decode(answered, version, encode(response, version))[0]


def test_answers() -> None:
    """Every command has a group of its own."""
    check(TRACES / "answers.txt", BrokerScript().run)
