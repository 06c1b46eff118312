"""What of an administrative request its sender may do is served, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from types import GeneratorType
from typing import Any

import pytest
from immutables import Map

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.shared.permitted_entries import permitted_entries
from kraftrio.broker.security.authorizer import ALLOW_ALL, CLUSTER, AclOperation, Resource
from kraftrio.broker.security.authorizer import ResourceType as Kind
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.slices.sliced_work import do_at_once
from kraftrio.kraft_meta.metadata.image import MetadataImage, TopicImage
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.support.authorizers import Allow

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
IDS = {name: name.encode() * 16 for name in "ab"}
CREATE, DELETE, DESCRIBE = AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE


class Metadata:
    """Knows topics a and b."""

    def __init__(self) -> None:
        topics = {name: TopicImage(name, topic_id, Map()) for name, topic_id in IDS.items()}
        self.image = MetadataImage(
            topics_by_name=Map(topics),
            topics_by_id=Map({topic.topic_id: topic for topic in topics.values()}),
        )


class Served:
    """A handler that does what it is asked, at once or later, and remembers it."""

    def __init__(self, *, later: bool = False) -> None:
        self.asked: list[list[Any]] = []
        self._later = later

    def __call__(self, request: Any, _context: RequestContext) -> Any:
        response: Any
        if isinstance(request, CreateTopicsRequest):
            names = [topic.name for topic in request.topics]
            results = [CreatableTopicResult(name=n, num_partitions=3, configs=[]) for n in names]
            response = CreateTopicsResponse(topics=results)
        else:
            states = request.topics or [DeleteTopicState(name=n) for n in request.topic_names]
            names = [state.name or state.topic_id for state in states]
            response = DeleteTopicsResponse(
                responses=[DeletableTopicResult(name=s.name, topic_id=s.topic_id) for s in states]
            )
        self.asked.append(names)
        return Deferred.completed(response) if self._later else response


def serve(
    key: ApiKey, request: Any, handler: Served, allowed: Collection[Any] | None, version: int = 6
) -> Any:
    authorizer = ALLOW_ALL if allowed is None else Allow(allowed)
    client = ClientInfo("h", 1, "PLAINTEXT")
    context = RequestContext(key, version, 1, None, client, authorizer)
    answer = permitted_entries({key: handler}, Metadata())[key](request, context)
    if isinstance(answer, GeneratorType):
        answer = do_at_once(answer).value
    return answer.value if isinstance(answer, Deferred) else answer


def named(name: str, operation: AclOperation) -> tuple[AclOperation, Resource]:
    return operation, Resource(Kind.TOPIC, name)


@pytest.mark.parametrize("later", [False, True])
def test_the_others_are_served_as_if_they_were_alone(later: bool) -> None:
    """And the answer names all of them."""
    handler = Served(later=later)
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in "ab"])
    topics = serve(ApiKey.CREATE_TOPICS, request, handler, {named("a", CREATE)}).topics
    assert {one.name: one.error_code for one in topics} == {"a": ErrorCode.NONE, "b": REFUSED}
    assert handler.asked == [["a"]]
    assert len(request.topics) == 2


def test_the_handler_is_not_called_where_nothing_is_permitted() -> None:
    handler = Served()
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in "ab"])
    topics = serve(ApiKey.CREATE_TOPICS, request, handler, ()).topics
    assert {one.error_code for one in topics} == {REFUSED}
    assert handler.asked == []


def test_settings_of_new_topics_are_returned_to_who_may_describe_them() -> None:
    """The others get an authorization error, beside the topic that was made."""
    describe = named("a", AclOperation.DESCRIBE_CONFIGS)
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in "ab"])
    topics = serve(ApiKey.CREATE_TOPICS, request, Served(), {(CREATE, CLUSTER), describe}).topics
    assert [(one.num_partitions, one.topic_config_error_code) for one in topics] == [
        (3, ErrorCode.NONE),
        (-1, REFUSED),
    ]


def test_a_topic_keeps_its_name_to_itself_where_its_id_was_named() -> None:
    """Unless the client may describe it."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=one) for one in (*IDS.values(), b"c" * 16)]
    )
    handler = Served()
    responses = serve(ApiKey.DELETE_TOPICS, request, handler, {named("a", DESCRIBE)}).responses
    assert {one.topic_id: (one.name, one.error_code) for one in responses} == {
        IDS["a"]: ("a", REFUSED),
        IDS["b"]: (None, REFUSED),
        b"c" * 16: (None, ErrorCode.NONE),
    }
    assert handler.asked == [[b"c" * 16]]  # the controller says that there is no such topic


def test_names_of_old_versions_are_checked_as_well() -> None:
    request = DeleteTopicsRequest(topic_names=["a", "b"])
    handler = Served()
    serve(ApiKey.DELETE_TOPICS, request, handler, {named("b", DELETE)}, version=5)
    assert handler.asked == [["b"]]


def test_without_an_authorizer_the_request_goes_through_as_it_is() -> None:
    handler = Served()
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in "ab"])
    serve(ApiKey.CREATE_TOPICS, request, handler, None)
    assert handler.asked == [["a", "b"]]


def test_too_many_at_once_are_refused_before_anybody_is_asked() -> None:
    handler = Served()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="a")] * 10_001)
    topics = serve(ApiKey.CREATE_TOPICS, request, handler, {(CREATE, CLUSTER)}).topics
    assert {one.error_code for one in topics} == {ErrorCode.POLICY_VIOLATION}
    assert handler.asked == []
