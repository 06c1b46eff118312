"""This node's controller, with answers of the protocol."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.controller.local_controller import LocalController
from kraftrio.kraft_meta.quorum.active_controller import (
    MAY_BE_DECIDED,
    NEVER_DECIDED,
    NotController,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.unit.broker.controller.controller_fakes import FakeQuorum

REQUEST = CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in ("a", "a", "b")])


@pytest.mark.parametrize("refusal", [NEVER_DECIDED, MAY_BE_DECIDED])
def test_a_node_that_is_not_the_controller_says_so_for_every_item(refusal: NotController) -> None:
    """Once for each name, whether it never decided or gave up what it had decided."""
    controller = LocalController(FakeQuorum(answer=lambda _request: refusal))
    answer = controller.submit(REQUEST, api_version=7).value
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.NOT_CONTROLLER),
        ("b", ErrorCode.NOT_CONTROLLER),
    ]


def test_decisions_pass_as_they_are() -> None:
    """At once, or when they are committed."""
    response = CreateTopicsResponse()
    parked: Deferred[CreateTopicsResponse] = Deferred()
    decisions: list[Any] = [response, parked]
    for decision in decisions:
        quorum = FakeQuorum(answer=partial(lambda decision, _request: decision, decision))
        answer = LocalController(quorum).submit(REQUEST, api_version=7)
        assert answer.done is (decision is response)
        if not parked.done and decision is parked:
            parked.complete(response)
        assert answer.value is response
