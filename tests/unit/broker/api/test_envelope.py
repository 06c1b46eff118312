"""Envelope: what is inside is decided on for its client."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.api.envelope import EnvelopeHandler
from kraftrio.broker.controller.envelopes import unwrap_response, wrap
from kraftrio.broker.controller.local_controller import LocalController
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import EnvelopeRequest
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import context, create
from tests.unit.broker.api.test_controller import ControllerNode

ALICE = RequestSender("alice", "app")


def sent(node: ControllerNode, request: Any, sender: RequestSender = ALICE) -> Any:
    handler = EnvelopeHandler(LocalController(node), node.cluster.timers)
    answer = finish(handler.envelope(wrap(request, 7, sender), context(0)))
    return unwrap_response(request, 7, answer)


def test_a_request_is_decided_on_for_its_client() -> None:
    node = ControllerNode()
    assert sent(node, create("t")).topics[0].error_code is ErrorCode.NONE
    assert node.cluster.senders == [ALICE]
    assert node.cluster.metadata.topic("t") is not None


def test_a_node_that_does_not_decide_says_so_inside() -> None:
    """As for a request that came by itself: its broker looks for the one that does."""
    node = ControllerNode()
    node.leader_id = 3
    assert sent(node, create("t")).topics[0].error_code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("data", [b"", b"\0" * 20])
def test_an_envelope_without_a_request_is_refused(data: bytes) -> None:
    node = ControllerNode()
    handler = EnvelopeHandler(LocalController(node), node.cluster.timers)
    answer = finish(handler.envelope(EnvelopeRequest(request_data=data), context(0)))
    assert answer.error_code is ErrorCode.INVALID_REQUEST
