"""This node's controller, with answers of the protocol: `LocalController`.

Rules: where this node does not decide, the answer is NOT_CONTROLLER for the whole request, and its
sender looks for the active controller.

Called by: the handlers of the controller listener. A broker's own requests go through
controller/client.py, which finds the active controller by itself.
"""

from __future__ import annotations

from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.ports import ClientsController
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.quorum.active_controller import NotController
from kraftrio.wire.errors import ErrorCode


class LocalController:
    """A `ClientsController`; `quorum` decides, or says that it is not the controller."""

    def __init__(self, quorum: ClientsController) -> None:
        self._quorum = quorum

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        """Let this node's controller decide; the response comes once it is committed."""
        return _answer(request, self._quorum.submit(request, api_version=api_version))

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        """The same for a client whose changes are to be counted."""
        decision = self._quorum.submit_for(sender, request, api_version=api_version)
        return _answer(request, decision)


def _answer(request: Any, decision: Deferred[Any]) -> Deferred[Any]:
    def answer(decision: Any) -> Any:
        if isinstance(decision, NotController):
            return error_response(request, ErrorCode.NOT_CONTROLLER)
        return decision

    if decision.done:
        return Deferred.completed(answer(decision.value))
    return decision.map(answer)
