"""Delegation tokens, as a node answers its clients."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.base.secret import Secret
from kraftrio.broker.api.delegation_tokens import DelegationTokenHandlers
from kraftrio.broker.api.envelope import EnvelopeHandler
from kraftrio.broker.controller.envelopes import unwrap_response, wrap
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.security.authorizer import AclOperation, AnyResource, Resource, ResourceType
from kraftrio.broker.security.principal import ANONYMOUS, KafkaPrincipal
from kraftrio.broker.security.sasl.authenticator import Authenticator
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.kraft_meta.controller.control import TokenSettings
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.kraft_meta.metadata.token_image import token_hmac
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import EnvelopeRequest
from kraftrio.wire.messages.security import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import ManualTimers
from tests.unit.kraft_meta.controller.context import ControllerContext

KEY = Secret("key")


class Allows:
    """An authorizer that allows what a test names."""

    def __init__(self, *allowed: tuple[AclOperation, Resource]) -> None:
        self.allowed = allowed

    def authorize(self, _who: Any, _host: str, operation: AclOperation, what: AnyResource) -> bool:
        return (operation, what) in self.allowed


class Login:
    """A login, by a token or not."""

    def __init__(self, *, is_by_token: bool = False) -> None:
        self.is_by_token = is_by_token


class Cluster:
    """The controller core, and a node that asks it."""

    def __init__(self, key: Secret | None = KEY) -> None:
        self.context = ControllerContext(tokens=TokenSettings(key))
        self.metadata = MetadataCache()
        self.handlers = DelegationTokenHandlers(self.metadata, self, key)

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        response = self.context.send(request, api_version)
        self.metadata.image = self.context.image
        return Deferred.completed(response)

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        return self.submit(request, api_version=api_version)

    def ask(
        self,
        request: Any,
        who: str = "alice",
        *allowed: tuple[AclOperation, Resource],
        login: Login | None = None,
    ) -> Any:
        principal = ANONYMOUS if who == "ANONYMOUS" else KafkaPrincipal("User", who)
        client = ClientInfo("h", 1, "L", principal=principal)
        if who != "ANONYMOUS":
            client.login = cast(Authenticator, login or Login())
        context = RequestContext(0, 3, 1, "c", client, Allows(*allowed))
        handler = {
            CreateDelegationTokenRequest: self.handlers.create,
            RenewDelegationTokenRequest: self.handlers.renew,
            ExpireDelegationTokenRequest: self.handlers.expire,
            DescribeDelegationTokenRequest: self.handlers.describe,
        }[type(request)]
        answer = finish(cast(Any, handler)(request, context))
        return answer.value if isinstance(answer, Deferred) else answer

    def describe(self, who: str, *allowed: Any, owners: list[str] | None = None) -> list[str]:
        named = None if owners is None else [_user(owner) for owner in owners]
        answer = self.ask(DescribeDelegationTokenRequest(owners=named), who, *allowed)
        assert answer.error_code == ErrorCode.NONE
        for token in answer.tokens:
            assert token.hmac == token_hmac(KEY, token.token_id)
        return sorted(token.principal_name for token in answer.tokens)


def _user(name: str) -> DescribeDelegationTokenOwner:
    return DescribeDelegationTokenOwner(principal_type="User", principal_name=name)


REQUESTS: list[Any] = [
    CreateDelegationTokenRequest(max_lifetime_ms=-1),
    RenewDelegationTokenRequest(hmac=b"x"),
    ExpireDelegationTokenRequest(hmac=b"x"),
    DescribeDelegationTokenRequest(owners=None),
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_who_has_not_logged_in_or_only_by_a_token_may_not_ask(request_: Any) -> None:
    cluster = Cluster()
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert cluster.ask(request_, "ANONYMOUS").error_code == refused
    assert cluster.ask(request_, login=Login(is_by_token=True)).error_code == refused
    assert not cluster.context.image.delegation_tokens


@pytest.mark.parametrize("request_", REQUESTS)
def test_without_a_secret_there_are_no_tokens(request_: Any) -> None:
    refused = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert Cluster(None).ask(request_).error_code == refused


def test_a_token_of_one_s_own_needs_no_right_another_s_does() -> None:
    cluster = Cluster()
    made = cluster.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert (made.error_code, made.principal_name) == (ErrorCode.NONE, "alice")
    of_bob = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=-1
    )
    refused = cluster.ask(of_bob)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.issue_timestamp_ms) == ("bob", -1)
    right = (AclOperation.CREATE_TOKENS, Resource(ResourceType.USER, "User:bob"))
    made = cluster.ask(of_bob, "alice", right)
    assert (made.error_code, made.principal_name) == (ErrorCode.NONE, "bob")
    assert made.token_requester_principal_name == "alice"
    renewer = CreatableRenewers(principal_type="Group", principal_name="x")
    refused = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1)
    assert cluster.ask(refused).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_an_owner_has_a_type() -> None:
    """Or the token would be nobody's, whom no rule names."""
    cluster = Cluster()
    untyped = CreateDelegationTokenRequest(owner_principal_name="alice", max_lifetime_ms=-1)
    right = (AclOperation.CREATE_TOKENS, Resource(ResourceType.USER, ":alice"))
    assert cluster.ask(untyped, "alice", right).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not cluster.context.image.delegation_tokens


def test_a_token_is_renewed_and_ended_by_its_owner() -> None:
    cluster = Cluster()
    made = cluster.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1)
    assert cluster.ask(renewal).error_code == ErrorCode.NONE
    assert cluster.ask(renewal, "eve").error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    end = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    assert cluster.ask(end).error_code == ErrorCode.NONE
    assert cluster.describe("alice") == []


def test_tokens_are_described_to_whom_they_concern_or_who_may() -> None:
    cluster = Cluster()
    bob = CreatableRenewers(principal_type="User", principal_name="bob")
    made = cluster.ask(CreateDelegationTokenRequest(renewers=[bob], max_lifetime_ms=-1))
    cluster.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), "carol")
    assert cluster.describe("alice") == ["alice"]
    assert cluster.describe("bob") == ["alice"]
    assert cluster.describe("eve") == []
    assert cluster.describe("carol", owners=["alice", "carol"]) == ["carol"]
    assert cluster.describe("alice", owners=["bob"]) == ["alice"]
    assert cluster.describe("alice", owners=["carol"]) == []
    one = (AclOperation.DESCRIBE, Resource(ResourceType.DELEGATION_TOKEN, made.token_id))
    assert cluster.describe("eve", one) == ["alice"]
    of_carol = (AclOperation.DESCRIBE_TOKENS, Resource(ResourceType.USER, "User:carol"))
    assert cluster.describe("eve", one, of_carol) == ["alice", "carol"]


def test_a_controller_decides_by_the_principal_in_the_envelope() -> None:
    cluster = Cluster()
    request = TokenRequest(CreateDelegationTokenRequest(max_lifetime_ms=-1), "User", "alice")
    handler = EnvelopeHandler(cluster, ManualTimers())
    broker = RequestContext(58, 0, 1, "c", ClientInfo("h", 1, "CONTROLLER"))
    answer = finish(handler.envelope(wrap(request, 3), broker))
    made = unwrap_response(request, 3, answer)
    assert (made.error_code, made.principal_name) == (ErrorCode.NONE, "alice")
    refused = finish(handler.envelope(EnvelopeRequest(), broker))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
