"""Serves FindCoordinator: which broker coordinates a group, a transactional id or a share
partition.

Behaviour
- A coordinator's topic is created when it is first asked for; COORDINATOR_NOT_AVAILABLE makes
  clients ask again until it has a leader.
- A share partition's key is group:topicId:partition; only brokers may ask for its coordinator, and
  only in the newest version: else INVALID_REQUEST.
- A client that may not see a group, or a transactional id, does not learn where it is.

Version notes
- 4 asks for several keys (KIP-699); each has an error of its own. 6 knows share partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.share_state import read_coordinator_key
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.cluster import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraftrio.wire.protocol.api import ApiKey

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2

_KINDS = {
    GROUP_KEY: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION_KEY: (
        ResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}

_COORDINATOR_KEYS_VERSION = 4
_SHARE_KEYS_VERSION = 6


class FindCoordinatorHandler:
    """The handler of one broker.

    Args:
        coordinators: by key type.
        create_internal_topic: asks the controller for an internal topic by name; asking again
            while the first request is under way must do no harm.
    """

    def __init__(
        self,
        coordinators: Mapping[int, CoordinatorRuntime[Any]],
        metadata: MetadataCache,
        create_internal_topic: Callable[[str], None],
    ) -> None:
        self._coordinators = coordinators
        self._metadata = metadata
        self._create_internal_topic = create_internal_topic

    def table(self) -> HandlerTable:
        return {ApiKey.FIND_COORDINATOR: self.find_coordinator}

    def find_coordinator(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse:
        if context.api_version >= _COORDINATOR_KEYS_VERSION:
            return FindCoordinatorResponse(
                coordinators=each(
                    lambda key: self._find(request.key_type, key, context),
                    request.coordinator_keys,
                )
            )
        found = self._find(request.key_type, request.key, context)
        code = found.error_code
        return FindCoordinatorResponse(
            error_code=code,
            error_message="NONE"
            if code is ErrorCode.NONE
            else found.error_message or code.sentence,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find(self, key_type: int, key: str, context: RequestContext) -> Coordinator:
        coordinator = self._coordinators.get(key_type)
        if coordinator is None:
            return _no_coordinator(
                key, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.sentence
            )
        refusal = _refusal(key_type, key, context)
        if refusal is not ErrorCode.NONE:
            return _no_coordinator(key, refusal)
        if self._metadata.topic(coordinator.topic) is None:
            self._create_internal_topic(coordinator.topic)
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        index = coordinator.partition_for(key)
        partition = self._metadata.partition(coordinator.topic, index)
        if partition is None or partition.leader < 0:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        endpoint = self._metadata.endpoint(partition.leader, context.listener_name)
        if endpoint is None:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(
            key=key,
            node_id=partition.leader,
            host=endpoint.host,
            port=endpoint.port,
            error_message="",
        )


def _refusal(key_type: int, key: str, context: RequestContext) -> ErrorCode:
    """Why a client is not given a coordinator; NONE: it is."""
    if key_type == SHARE_KEY:
        if context.api_version < _SHARE_KEYS_VERSION:
            return ErrorCode.INVALID_REQUEST
        if not context.is_authorized(AclOperation.CLUSTER_ACTION, CLUSTER):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        try:
            read_coordinator_key(key)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE
    resource_type, refusal = _KINDS[key_type]
    if not context.is_authorized(AclOperation.DESCRIBE, Resource(resource_type, key)):
        return refusal
    return ErrorCode.NONE


def _no_coordinator(key: str, error: ErrorCode, message: str = "") -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
    )
