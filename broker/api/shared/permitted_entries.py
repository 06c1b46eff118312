"""Serves what of an administrative request its sender may do: `permitted_entries`.

Behaviour (Kafka's): each topic or resource that a request names is refused by itself, with the
error of its kind, and is not decided on; the others are served as if they were alone.
- CreateTopics needs CREATE on the cluster or on the topic. The settings of a new topic are shown to
  those who may describe its configuration.
- DeleteTopics needs DELETE on the cluster or on the topic. A topic that was named by its id keeps
  its name to itself, unless the client may describe it.
- CreatePartitions needs ALTER on the topic.
- Configurations of brokers, loggers and client metrics belong to the cluster.

Called by: the wiring of brokers and controllers, for their tables of handlers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.shared.decision_parts import MOST_ENTRIES, refuse_excessive
from kraftrio.broker.ports import MetadataPort
from kraftrio.broker.security.api_access import REFUSALS
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import Handler, HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kraftrio.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kraftrio.wire.protocol.api import ApiKey

_NOT_AUTHORIZED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED

_OWNERS: Final[Mapping[int, ResourceType]] = {
    TOPIC: ResourceType.TOPIC,
    GROUP: ResourceType.GROUP,
    BROKER: ResourceType.CLUSTER,
    BROKER_LOGGER: ResourceType.CLUSTER,
    CLIENT_METRICS: ResourceType.CLUSTER,
}
"""Whose configuration a type of configuration resource is, for the authorizer."""

# Gives the answer that refuses an entry; None: it is permitted.
_Check: TypeAlias = Callable[[Any, RequestContext, MetadataPort], Any]


@dataclass(frozen=True, slots=True)
class _EntryApi:
    """One API: where its entries are, and their answers; and what each of them needs."""

    response: Callable[[], Any]
    array: str
    answers: str
    check: _Check
    finish: Callable[[Any, RequestContext], None] | None = None


def config_refusal(
    context: RequestContext, operation: AclOperation, resource_type: int, name: str
) -> ErrorCode:
    """Why a client may not do something to a configuration; NONE if it may.

    A type that there is not is for the handler to refuse.
    """
    owner = _OWNERS.get(resource_type)
    if owner is None:
        return ErrorCode.NONE
    resource = CLUSTER if owner is ResourceType.CLUSTER else Resource(owner, name)
    return ErrorCode.NONE if context.is_authorized(operation, resource) else REFUSALS[owner]


def permitted_entries(table: HandlerTable, metadata: MetadataPort) -> HandlerTable:
    """Return handlers that get only the entries that the sender of a request may use."""
    guarded: HandlerTable = {}
    for key, handler in table.items():
        guarded[key] = partial(_serve, metadata, handler) if key in _APIS else handler
    return guarded


def _serve(metadata: MetadataPort, handler: Handler, request: Any, context: RequestContext) -> Any:
    if not context.is_guarded:
        return handler(request, context)
    kind = _KINDS[type(request)]
    if type(request) is DeleteTopicsRequest and not request.topics:
        kind = _DELETED_BY_NAME
    return _serve_permitted(kind, metadata, handler, request, context)


def _serve_permitted(
    kind: _EntryApi, metadata: MetadataPort, handler: Handler, request: Any, context: RequestContext
) -> Work[Any]:
    entries = getattr(request, kind.array)
    if len(entries) > MOST_ENTRIES:
        return refuse_excessive(request)
    permitted: list[Any] = []
    refused: list[Any] = []
    for entry in entries:
        refusal = kind.check(entry, context, metadata)
        if refusal is None:
            permitted.append(entry)
        else:
            refused.append(refusal)
        yield None
    response = kind.response()
    if permitted or not refused:
        asked = copy.copy(request)
        setattr(asked, kind.array, permitted)
        response = handler(asked, context)
        if isinstance(response, Generator):
            response = yield from response
        if isinstance(response, Deferred):
            yield response
            response = response.value
    if kind.finish is not None:
        kind.finish(response, context)
    setattr(response, kind.answers, [*getattr(response, kind.answers), *refused])
    return response


# -- topics ----------------------------------------------------------------------------------------


def _may_change_topics(context: RequestContext, operation: AclOperation, name: str | None) -> bool:
    return context.may_see(operation, CLUSTER) or context.may(operation, ResourceType.TOPIC, name)


def _check_creation(topic: CreatableTopic, context: RequestContext, _metadata: MetadataPort) -> Any:
    if _may_change_topics(context, AclOperation.CREATE, topic.name):
        return None
    return CreatableTopicResult(
        name=topic.name, error_code=_NOT_AUTHORIZED, error_message="Authorization failed."
    )


def _hide_configs(response: CreateTopicsResponse, context: RequestContext) -> None:
    """Show the settings of new topics only to those who may describe them."""
    for topic in response.topics:
        if topic.error_code is ErrorCode.NONE and not context.may(
            AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name
        ):
            topic.topic_config_error_code = _NOT_AUTHORIZED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []


def _check_deletion(
    topic: DeleteTopicState, context: RequestContext, metadata: MetadataPort
) -> Any:
    name = topic.name
    if name is None:
        image = metadata.image.topic_by_id(topic.topic_id)
        if image is None:
            return None  # which the controller will say
        name = image.name
    if _may_change_topics(context, AclOperation.DELETE, name):
        return None
    is_known = topic.name is not None or context.may_see(
        AclOperation.DESCRIBE, Resource(ResourceType.TOPIC, name)
    )
    return _not_deleted(name if is_known else None, topic.topic_id)


def _check_deletion_by_name(name: str, context: RequestContext, _metadata: MetadataPort) -> Any:
    if _may_change_topics(context, AclOperation.DELETE, name):
        return None
    return _not_deleted(name, bytes(16))


def _not_deleted(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=_NOT_AUTHORIZED,
        error_message=_NOT_AUTHORIZED.sentence,
    )


def _check_partitions(
    topic: CreatePartitionsTopic, context: RequestContext, _metadata: MetadataPort
) -> Any:
    if context.may(AclOperation.ALTER, ResourceType.TOPIC, topic.name):
        return None
    return CreatePartitionsTopicResult(
        name=topic.name, error_code=_NOT_AUTHORIZED, error_message=_NOT_AUTHORIZED.sentence
    )


# -- configurations --------------------------------------------------------------------------------


def _check_configs(
    answer: Callable[..., Any], resource: Any, context: RequestContext, _metadata: MetadataPort
) -> Any:
    kind, name = resource.resource_type, resource.resource_name
    code = config_refusal(context, AclOperation.ALTER_CONFIGS, kind, name)
    if code is ErrorCode.NONE:
        return None
    return answer(
        error_code=code, error_message=code.sentence, resource_type=kind, resource_name=name
    )


_KINDS: Final[dict[type[Any], _EntryApi]] = {
    CreateTopicsRequest: _EntryApi(
        CreateTopicsResponse, "topics", "topics", _check_creation, _hide_configs
    ),
    DeleteTopicsRequest: _EntryApi(DeleteTopicsResponse, "topics", "responses", _check_deletion),
    CreatePartitionsRequest: _EntryApi(
        CreatePartitionsResponse, "topics", "results", _check_partitions
    ),
    AlterConfigsRequest: _EntryApi(
        AlterConfigsResponse,
        "resources",
        "responses",
        partial(_check_configs, AlterConfigsResourceResponse),
    ),
    IncrementalAlterConfigsRequest: _EntryApi(
        IncrementalAlterConfigsResponse,
        "resources",
        "responses",
        partial(_check_configs, IncrementalAlterConfigsResourceResponse),
    ),
}
_DELETED_BY_NAME: Final = _EntryApi(
    DeleteTopicsResponse, "topic_names", "responses", _check_deletion_by_name
)
_APIS: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)
