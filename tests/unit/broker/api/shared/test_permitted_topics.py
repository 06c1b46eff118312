"""Topics that a client may do something to are asked about once, and the answer stays."""

from __future__ import annotations

from kraftrio.broker.api.shared.permitted_topics import PermittedTopics
from kraftrio.broker.security.authorizer import (
    ALLOW_ALL,
    AclOperation,
    Authorizer,
    Resource,
    ResourceType,
)
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.wire.protocol.api import ApiKey
from tests.support.authorizers import Allow


def context(authorizer: Authorizer) -> RequestContext:
    client = ClientInfo("h", 1, "PLAINTEXT")
    return RequestContext(ApiKey.OFFSET_COMMIT, 9, 1, None, client, authorizer)


def test_each_topic_is_asked_about_once() -> None:
    """What was done by the first answer is in it, whatever changes meanwhile."""
    authorizer = Allow({(AclOperation.READ, Resource(ResourceType.TOPIC, "a"))})
    readable = PermittedTopics(context(authorizer), AclOperation.READ)
    assert "a" in readable
    assert "b" not in readable
    authorizer.allowed.clear()
    assert "a" in readable
    assert len(authorizer.asked) == 2


def test_without_an_authorizer_all_are_permitted() -> None:
    assert "a" in PermittedTopics(context(ALLOW_ALL), AclOperation.READ)
