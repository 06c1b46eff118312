"""Envelope (KIP-590): what brokers forward to a controller in the name of their clients.

Behaviour: only requests about delegation tokens come so, since the controller decides by who sends
them, and those of clients with a quota of what they may change, since it counts for whom; all
others are forwarded as they are. The sender needs the rights of a broker, and its word is
taken for who its client is.

Called by: the dispatcher of the controller listener.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.shared.decision_parts import decide_in_parts
from kraftrio.broker.api.shared.decisions import decide_in_time
from kraftrio.broker.controller.envelopes import Unwrapped, unwrap, wrap_response
from kraftrio.broker.ports import ClientsController, SchedulerPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.messages.quorum import EnvelopeRequest, EnvelopeResponse
from kraftrio.wire.protocol.api import ApiKey


class EnvelopeHandler:
    """Serves this API on one controller."""

    def __init__(self, controller: ClientsController, scheduler: SchedulerPort) -> None:
        self._controller = controller
        self._scheduler = scheduler

    def table(self) -> HandlerTable:
        """The handler by API."""
        return {ApiKey.ENVELOPE: self.envelope}

    def envelope(
        self, request: EnvelopeRequest, _context: RequestContext
    ) -> Work[EnvelopeResponse]:
        """Let the controller decide on what is inside."""
        try:
            unwrapped = unwrap(request)
        except KafkaError as error:
            return EnvelopeResponse(error_code=error.code)
        response = yield from self._decide(unwrapped)
        if isinstance(response, Deferred):
            yield response
            response = response.value
        return wrap_response(response, unwrapped)

    def _decide(self, unwrapped: Unwrapped) -> Work[Any]:
        request, sender, version = unwrapped.request, unwrapped.sender, unwrapped.api_version
        if isinstance(request, TokenRequest):
            yield None
            return self._controller.submit(request, api_version=version)
        submit = partial(self._controller.submit_for, sender)
        return (
            yield from decide_in_parts(
                partial(decide_in_time, submit, self._scheduler, api_version=version), request
            )
        )
