"""SaslHandshake and SaslAuthenticate on a connection that is served already.

Behaviour (Kafka's)
- Where clients log in by SASL they may do so again before their session ends (KIP-368), as the
  same user by the same mechanism; the answers are those of the first login. One that fails is
  reported, and its connection ends.
- Elsewhere, where sessions have no end, and less than a second after the last time:
  ILLEGAL_SASL_STATE, no mechanisms.

The first login is not served here, but before (`server/admission/sasl_admission`).

Called by: the dispatchers of brokers and of controllers.
"""

from __future__ import annotations

from kraftrio.broker.ports import SchedulerPort
from kraftrio.broker.security.sasl.authenticator import AuthenticationRefused
from kraftrio.broker.server.audit import login_refused
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kraftrio.wire.protocol.api import ApiKey

_ANSWER_MS = 1000  # in which a refused client takes its answer


class SaslHandlers:
    """Serves these APIs on one node.

    Args:
        scheduler: ends the connections of clients that were refused.
    """

    def __init__(self, scheduler: SchedulerPort) -> None:
        self._scheduler = scheduler

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.SASL_HANDSHAKE: self.handshake,
            ApiKey.SASL_AUTHENTICATE: self.authenticate,
        }

    def handshake(
        self, request: SaslHandshakeRequest, context: RequestContext
    ) -> SaslHandshakeResponse:
        """Begin a login again."""
        login = context.client.login
        if login is None or context.api_version == 0:  # bare tokens cannot come between requests
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        try:
            return login.handshake(request.mechanism)
        except AuthenticationRefused as error:
            answer = self._refuse(error, context)
            assert isinstance(answer, SaslHandshakeResponse), "of the request that was refused"
            return answer

    def authenticate(
        self, request: SaslAuthenticateRequest, context: RequestContext
    ) -> SaslAuthenticateResponse:
        """Take the next step of a login."""
        login = context.client.login
        if login is None or not login.is_exchanging:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        try:
            return login.authenticate(bytes(request.auth_bytes))
        except AuthenticationRefused as error:
            answer = self._refuse(error, context)
            assert isinstance(answer, SaslAuthenticateResponse), "of the request that was refused"
            return answer

    def _refuse(self, error: AuthenticationRefused, context: RequestContext) -> object:
        """End the connection, once its client has the answer."""
        client = context.client
        mechanism = None if client.login is None else client.login.mechanism
        login_refused(client.host, client.listener_name, str(mechanism), error.described)
        if error.answer is None:
            raise RemoteProtocolError(error.reason) from error
        if client.end is not None:
            self._scheduler.schedule(_ANSWER_MS, client.end)
        return error.answer
