"""What nodes log is traced; the program's own view of the log stays as it was."""

from __future__ import annotations

import logging

import pytest

from kraftrio.testing import KafkaBroker
from kraftrio.testing.local_nodes import LocalNodes

_LOGGER = logging.getLogger("kraftrio.cluster")


def _traced(broker: KafkaBroker) -> list[str]:
    nodes = broker.life.started()[0].nodes
    assert isinstance(nodes, LocalNodes)
    return [line for line in nodes.trace.newest if "topic created topic=orders" in line]


def test_info_is_for_the_trace_alone(caplog: pytest.LogCaptureFixture) -> None:
    before = _LOGGER.level, _LOGGER.filters[:]
    with KafkaBroker() as broker, KafkaBroker() as other:
        broker.create_topic("orders", 1)
        assert len(_traced(broker)) == 1
        assert not _traced(other)
        assert not [each for each in caplog.records if each.levelno < logging.WARNING]
        _LOGGER.warning("of somebody else")
        assert [each.getMessage() for each in caplog.records] == ["of somebody else"]
    assert (_LOGGER.level, _LOGGER.filters) == before


def test_who_wants_to_see_more_does(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), KafkaBroker() as broker:
        broker.create_topic("orders", 1)
        assert len(_traced(broker)) == 1
        assert "topic created" in caplog.messages
