"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken.

Behaviour (Kafka's, KIP-48, KIP-373)
- Only a client that has logged in may ask, and not by a token:
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
- A token for another user is made by those who may create tokens of that user; its renewers are
  users. What changes tokens is decided by the active controller, by the principal that asks.
- Described are the tokens that the principal owns, made or may renew, and those that it may
  describe, or whose owners' tokens it may. They come with their HMACs: who may see a token may use
  it.
Version notes: 3: tokens of other owners, and who made them.

Called by: the dispatchers of brokers and of controllers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.base.secret import Secret
from kraftrio.broker.ports import ControllerPort, MetadataPort
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.broker.security.principal import ANONYMOUS
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.kraft_meta.metadata.token_image import DelegationToken, token_hmac
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kraftrio.wire.protocol.api import ApiKey

_USER = "User"
_NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenHandlers:
    """Serves these APIs on one node.

    Args:
        secret_key: `delegation.token.secret.key`; None: there are no tokens.
    """

    def __init__(
        self, metadata: MetadataPort, controller: ControllerPort, secret_key: Secret | None
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._secret_key = secret_key

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: self.create,
            ApiKey.RENEW_DELEGATION_TOKEN: self.renew,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self.expire,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self.describe,
        }

    def create(
        self, request: CreateDelegationTokenRequest, context: RequestContext
    ) -> Deferred[Any] | CreateDelegationTokenResponse:
        """Have a token made, of the client's own or of another's."""
        requester = context.principal
        owner_type, owner_name = requester
        if request.owner_principal_name:
            owner_type = request.owner_principal_type or ""
            owner_name = request.owner_principal_name
        refusal = ErrorCode.NONE
        if not _may_ask(context):
            refusal = _NOT_ALLOWED
        elif (owner_type, owner_name) != requester and not context.is_authorized(
            AclOperation.CREATE_TOKENS, Resource(ResourceType.USER, f"{owner_type}:{owner_name}")
        ):
            refusal = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif not owner_type or any(one.principal_type != _USER for one in request.renewers):
            refusal = ErrorCode.INVALID_PRINCIPAL_TYPE
        if refusal is ErrorCode.NONE:
            return self._forward(request, context)
        has_requester = context.api_version >= 3
        return CreateDelegationTokenResponse(
            error_code=refusal,
            principal_type=owner_type,
            principal_name=owner_name,
            token_requester_principal_type=requester.type if has_requester else "",
            token_requester_principal_name=requester.name if has_requester else "",
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
        )

    def renew(
        self, request: RenewDelegationTokenRequest, context: RequestContext
    ) -> Deferred[Any] | RenewDelegationTokenResponse:
        """Have a token live longer."""
        if not _may_ask(context):
            return RenewDelegationTokenResponse(error_code=_NOT_ALLOWED, expiry_timestamp_ms=-1)
        return self._forward(request, context)

    def expire(
        self, request: ExpireDelegationTokenRequest, context: RequestContext
    ) -> Deferred[Any] | ExpireDelegationTokenResponse:
        """Have a token end."""
        if not _may_ask(context):
            return ExpireDelegationTokenResponse(error_code=_NOT_ALLOWED, expiry_timestamp_ms=-1)
        return self._forward(request, context)

    def describe(
        self, request: DescribeDelegationTokenRequest, context: RequestContext
    ) -> Slices[DescribeDelegationTokenResponse]:
        """Describe the tokens that the client may see: all, or those of whom it names."""
        if not _may_ask(context):
            return DescribeDelegationTokenResponse(error_code=_NOT_ALLOWED)
        if self._secret_key is None:
            return DescribeDelegationTokenResponse(
                error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
            )
        owners: set[str] | None = None
        if request.owners is not None:
            owners = set()
            for owner in request.owners:
                owners.add(f"{owner.principal_type}:{owner.principal_name}")
                yield
        found = []
        for token in self._metadata.image.delegation_tokens.values():
            if (owners is None or not owners.isdisjoint(_principals_of(token))) and _may_see(
                token, context
            ):
                found.append(_described(token, self._secret_key, context.api_version))
            yield
        return DescribeDelegationTokenResponse(tokens=found)

    def _forward(self, message: Any, context: RequestContext) -> Deferred[Any]:
        request = TokenRequest(message, *context.principal)
        return self._controller.submit(request, api_version=context.api_version)


def _may_ask(context: RequestContext) -> bool:
    """Whether a client has shown who it is, and by something better than a token."""
    login = context.client.login
    if login is not None:
        return not login.is_by_token
    return context.principal != ANONYMOUS


def _principals_of(token: DelegationToken) -> tuple[str, ...]:
    """The owner, requester and renewers of a token."""
    return (token.owner, token.requester, *token.renewers)


def _may_see(token: DelegationToken, context: RequestContext) -> bool:
    return (
        str(context.principal) in _principals_of(token)
        or context.is_authorized(
            AclOperation.DESCRIBE, Resource(ResourceType.DELEGATION_TOKEN, token.token_id)
        )
        or context.is_authorized(
            AclOperation.DESCRIBE_TOKENS, Resource(ResourceType.USER, token.owner)
        )
    )


def _described(
    token: DelegationToken, secret_key: Secret, api_version: int
) -> DescribedDelegationToken:
    owner_type, owner_name = _parts(token.owner)
    requester_type, requester_name = _parts(token.requester) if api_version >= 3 else ("", "")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
        renewers=list(_renewers(token)),
    )


def _renewers(token: DelegationToken) -> Iterator[DescribedDelegationTokenRenewer]:
    for renewer in token.renewers:
        kind, name = _parts(renewer)
        yield DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name
