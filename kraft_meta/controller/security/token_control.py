"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, and tokens whose time is up.

Owns: `TokenRequest`, a request about tokens with its sender, and `TokenControl`, which keeps the
HMACs by which tokens are found. Tokens live by the wall clock, for which there is a callable.

Behaviour (Kafka's DelegationTokenControlManager): a token is renewed and ended by its owner and its
renewers, no matter who made it. Its life is the shorter of what is asked for and
`delegation.token.max.lifetime.ms`; it expires earlier unless it is renewed. Without
`delegation.token.secret.key` there are no tokens. Whether a principal may ask is for whoever took
the request.

Called by: controller.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kraftrio.kraft_meta.controller.control import ControllerResult, DecisionContext, TokenSettings
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.metadata.records import MetadataRecord
from kraftrio.kraft_meta.metadata.security_records import RemoveDelegationTokenRecord
from kraftrio.kraft_meta.metadata.token_image import DelegationToken, token_hmac
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kraftrio.wire.primitives import uuid_to_text

TOKEN_REQUESTS: Final = (
    CreateDelegationTokenRequest,
    RenewDelegationTokenRequest,
    ExpireDelegationTokenRequest,
)

_USER = "User"
_MOST_MS = (1 << 63) - 1
_EXPIRED_AT_ONCE = 1000  # records of one decision

_Change = tuple[int, MetadataRecord]


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """See the module; `message` is the request as it came."""

    message: Any = field(repr=False)
    principal_type: str
    principal_name: str

    @property
    def principal(self) -> str:
        """The principal as tokens name it."""
        return f"{self.principal_type}:{self.principal_name}"


class TokenControl:
    """See the module.

    Args:
        wall_ms: the time by the wall clock.
    """

    def __init__(self, settings: TokenSettings, wall_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._wall_ms = wall_ms
        self._ids: dict[bytes, str] = {}  # by HMAC
        self._hmacs: dict[str, bytes] = {}  # by id
        self._next_check_ms: float | None = None

    def activate(self, now_ms: float) -> None:
        """Begin to look for tokens whose time is up, where there are any."""
        self._next_check_ms = None if self._settings.secret_key is None else now_ms

    def next_deadline_ms(self) -> float | None:
        """When to look for them, by the monotonic clock."""
        return self._next_check_ms

    def expire(self, image: MetadataImage, now_ms: float) -> list[MetadataRecord]:
        """Return the records that remove expired tokens, if it is time to look."""
        if self._next_check_ms is None or now_ms < self._next_check_ms:
            return []
        wall_ms = self._wall_ms()
        records: list[MetadataRecord] = []
        for token in image.delegation_tokens.values():
            if token.is_expired(wall_ms) and len(records) < _EXPIRED_AT_ONCE:
                records.append(RemoveDelegationTokenRecord(token.token_id))
        has_more = len(records) >= _EXPIRED_AT_ONCE
        self._next_check_ms = now_ms + (0 if has_more else self._settings.check_interval_ms)
        return records

    def decide(self, request: TokenRequest, context: DecisionContext) -> ControllerResult:
        """Create, renew or expire a token."""
        message = request.message
        if isinstance(message, CreateDelegationTokenRequest):
            return self._create(message, request, context)
        assert isinstance(message, RenewDelegationTokenRequest | ExpireDelegationTokenRequest)
        renews = isinstance(message, RenewDelegationTokenRequest)
        respond = RenewDelegationTokenResponse if renews else ExpireDelegationTokenResponse
        try:
            token = self._find(bytes(message.hmac), context.image)
            if isinstance(message, RenewDelegationTokenRequest):
                expiry_ms, record = self._renew(message, token, request)
            else:
                expiry_ms, record = self._end(message, token, request)
        except KafkaError as error:
            return ControllerResult([], respond(error_code=error.code))
        return ControllerResult([record], respond(expiry_timestamp_ms=expiry_ms))

    def _create(
        self, message: CreateDelegationTokenRequest, request: TokenRequest, context: DecisionContext
    ) -> ControllerResult:
        settings, now_ms = self._settings, self._wall_ms()
        owner_type, owner_name = request.principal_type, request.principal_name
        if message.owner_principal_name:
            owner_type = message.owner_principal_type or ""
            owner_name = message.owner_principal_name
        response = CreateDelegationTokenResponse(
            principal_type=owner_type, principal_name=owner_name
        )
        if context.api_version >= 3:
            response.token_requester_principal_type = request.principal_type
            response.token_requester_principal_name = request.principal_name
        if settings.secret_key is None:
            response.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
            return ControllerResult([], response)
        if not owner_type or any(one.principal_type != _USER for one in message.renewers):
            response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
            return ControllerResult([], response)
        lifetime_ms = settings.max_lifetime_ms
        if message.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, message.max_lifetime_ms)
        max_ms = min(now_ms + lifetime_ms, _MOST_MS)
        renewers = (f"{one.principal_type}:{one.principal_name}" for one in message.renewers)
        token = DelegationToken(
            token_id=uuid_to_text(context.new_uuid()),
            owner=f"{owner_type}:{owner_name}",
            requester=request.principal,
            renewers=tuple(renewers),
            issue_ms=now_ms,
            max_ms=max_ms,
            expiry_ms=min(max_ms, now_ms + settings.expiry_time_ms),
        )
        response.issue_timestamp_ms = token.issue_ms
        response.expiry_timestamp_ms = token.expiry_ms
        response.max_timestamp_ms = token.max_ms
        response.token_id = token.token_id
        response.hmac = token_hmac(settings.secret_key, token.token_id)
        return ControllerResult([token.to_record()], response)

    def _find(self, given: bytes, image: MetadataImage) -> DelegationToken:
        """Return the token that has this HMAC."""
        secret_key = self._settings.secret_key
        if secret_key is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        tokens = image.delegation_tokens
        for token_id in [known for known in self._hmacs if known not in tokens]:
            del self._ids[self._hmacs.pop(token_id)]
        for token_id in tokens:
            if token_id not in self._hmacs:
                made = self._hmacs[token_id] = token_hmac(secret_key, token_id)
                self._ids[made] = token_id
        found = self._ids.get(given)
        if found is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return tokens[found]

    def _renew(
        self, message: RenewDelegationTokenRequest, token: DelegationToken, request: TokenRequest
    ) -> _Change:
        """Return when a token expires that is renewed, and the record that says so."""
        now_ms = self._wall_ms()
        if token.is_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if not token.may_be_renewed_by(request.principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        period_ms = self._settings.expiry_time_ms
        if message.renew_period_ms > 0:
            period_ms = min(period_ms, message.renew_period_ms)
        expiry_ms = min(token.max_ms, now_ms + period_ms)
        return expiry_ms, token._replace(expiry_ms=expiry_ms).to_record()

    def _end(
        self, message: ExpireDelegationTokenRequest, token: DelegationToken, request: TokenRequest
    ) -> _Change:
        """Return when a token expires whose end is set; it goes at once for a period below zero."""
        now_ms = self._wall_ms()
        if not token.may_be_renewed_by(request.principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        if message.expiry_time_period_ms < 0:
            return now_ms, RemoveDelegationTokenRecord(token.token_id)
        if token.is_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        expiry_ms = min(token.max_ms, now_ms + message.expiry_time_period_ms)
        return expiry_ms, token._replace(expiry_ms=expiry_ms).to_record()
