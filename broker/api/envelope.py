"""Envelope (KIP-590): what brokers forward to a controller in the name of their clients.

Behaviour: only requests about delegation tokens come so, since the controller decides by who sends
them; all others are forwarded as they are. The sender needs the rights of a broker, and its word is
taken for who its client is.

Called by: the dispatcher of the controller listener.
"""

from __future__ import annotations

from kraftrio.base.deferred import Deferred
from kraftrio.broker.controller.envelopes import unwrap, wrap_response
from kraftrio.broker.ports import ControllerPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.messages.quorum import EnvelopeRequest, EnvelopeResponse
from kraftrio.wire.protocol.api import ApiKey


class EnvelopeHandler:
    """Serves this API on one controller."""

    def __init__(self, controller: ControllerPort) -> None:
        self._controller = controller

    def table(self) -> HandlerTable:
        """The handler by API."""
        return {ApiKey.ENVELOPE: self.envelope}

    def envelope(
        self, request: EnvelopeRequest, _context: RequestContext
    ) -> EnvelopeResponse | Deferred[EnvelopeResponse]:
        """Let the controller decide on what is inside."""
        try:
            unwrapped = unwrap(request)
        except KafkaError as error:
            return EnvelopeResponse(error_code=error.code)
        decision = self._controller.submit(unwrapped.request, api_version=unwrapped.api_version)
        return decision.map(lambda response: wrap_response(response, unwrapped))
