"""AlterConfigs and IncrementalAlterConfigs: which configuration records follow from a request.

Behaviour: each resource succeeds or fails alone, with all of its changes or none, and only real
changes are recorded. AlterConfigs replaces everything a resource sets; IncrementalAlterConfigs
works key by key, and APPEND and SUBTRACT treat the value as a list without repetitions, starting
from the default when the resource does not set the key (KIP-339). Names and values are judged by
the ConfigValidator port, always on the configuration as it would be.

Called by: controller.py. Kafka's counterpart: ConfigurationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from immutables import Map

from kraftrio.kraft_meta.controller.control import ControllerResult, DecisionContext
from kraftrio.kraft_meta.metadata.image import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigResource,
)
from kraftrio.kraft_meta.metadata.records import ConfigRecord, MetadataRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kraftrio.wire.topic_names import check_topic_name

R = TypeVar("R", AlterConfigsResource, IncrementalAlterConfigsResource)
S = TypeVar("S", AlterConfigsResourceResponse, IncrementalAlterConfigsResourceResponse)

SET, DELETE, APPEND, SUBTRACT = range(4)

_MAX_VALUE_BYTES: Final = 0x7FFF  # of a string of the protocol


def alter_configs(request: AlterConfigsRequest, context: DecisionContext) -> ControllerResult:
    """Replace the configurations of each resource."""
    records, responses = _alter_each(
        request.resources, AlterConfigsResourceResponse, _replace_configs, context
    )
    response = AlterConfigsResponse(responses=responses)
    return ControllerResult([] if request.validate_only else records, response)


def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: DecisionContext
) -> ControllerResult:
    """Change single configurations of each resource."""
    records, responses = _alter_each(
        request.resources, IncrementalAlterConfigsResourceResponse, _change_configs, context
    )
    response = IncrementalAlterConfigsResponse(responses=responses)
    return ControllerResult([] if request.validate_only else records, response)


def _alter_each(
    resources: Iterable[R],
    response_type: type[S],
    alter: Callable[[ConfigResource, R, DecisionContext], Iterable[MetadataRecord]],
    context: DecisionContext,
) -> tuple[list[MetadataRecord], list[S]]:
    """Alter each resource by itself; one that is refused keeps no other from being altered."""
    records: list[MetadataRecord] = []
    responses: list[S] = []
    for resource, named in _by_resource(resources).items():
        response = response_type(
            resource_type=resource.type, resource_name=resource.name, error_message=None
        )
        try:
            _check_once(len(named))
            records += alter(resource, named[0], context)
        except KafkaError as error:
            response.error_code = error.code
            response.error_message = error.message
        responses.append(response)
    return records, responses


def _resource(data: AlterConfigsResource | IncrementalAlterConfigsResource) -> ConfigResource:
    return ConfigResource(data.resource_type, data.resource_name)


def _by_resource(resources: Iterable[R]) -> dict[ConfigResource, list[R]]:
    named: dict[ConfigResource, list[R]] = {}
    for data in resources:
        named.setdefault(_resource(data), []).append(data)
    return named


def _check_once(count: int) -> None:
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _check_keys(names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Error due to duplicate config keys : {','.join(repeated)}",
        )


def _check_resource(resource: ConfigResource) -> None:
    """Raise unless there may be such a resource."""
    if resource.type == TOPIC:
        check_topic_name(resource.name)
    elif resource.type == BROKER:
        _check_broker_name(resource.name)
    elif resource.type == GROUP:
        if not resource.name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    elif resource.type == CLIENT_METRICS:
        if not resource.name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Default client metrics resources are not allowed."
            )
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource.type}.")


def _check_broker_name(name: str) -> None:
    if name and not (name.isascii() and name.removeprefix("-").isdigit()):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Invalid broker id '{name}': it must be an integer."
        )


def _check_exists(resource: ConfigResource, context: DecisionContext) -> None:
    """Raise unless the topic or the node is there."""
    name = resource.name
    if resource.type == TOPIC and context.image.topic(name) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
    if resource.type == BROKER and name:
        node_id = int(name)
        if context.image.broker(node_id) is None and node_id not in context.config.controller_ids:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def _replace_configs(
    resource: ConfigResource, data: AlterConfigsResource, context: DecisionContext
) -> list[MetadataRecord]:
    _check_keys([config.name for config in data.configs])
    nulls = [config.name for config in data.configs if config.value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )
    _check_resource(resource)
    new = {config.name: config.value for config in data.configs if config.value is not None}
    return _records_to(resource, new, context)


def _change_configs(
    resource: ConfigResource, data: IncrementalAlterConfigsResource, context: DecisionContext
) -> list[MetadataRecord]:
    _check_keys([config.name for config in data.configs])
    nulls = [
        config.name
        for config in data.configs
        if config.value is None and config.config_operation != DELETE
    ]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )
    _check_resource(resource)
    new = dict(context.image.config(resource.type, resource.name))
    for config in data.configs:
        value = _new_value(resource, config, new.get(config.name), context)
        if value is None:
            new.pop(config.name, None)
        else:
            new[config.name] = value
    return _records_to(resource, new, context)


def _new_value(
    resource: ConfigResource,
    config: IncrementalAlterableConfig,
    current: str | None,
    context: DecisionContext,
) -> str | None:
    operation = config.config_operation
    if operation == SET:
        return config.value
    if operation == DELETE:
        return None
    if operation in (APPEND, SUBTRACT):
        return _edited_list(resource, config, current, context)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}.")


def _edited_list(
    resource: ConfigResource,
    config: IncrementalAlterableConfig,
    current: str | None,
    context: DecisionContext,
) -> str:
    operation = "APPEND" if config.config_operation == APPEND else "SUBTRACT"
    if not context.validator.is_list(resource.type, config.name):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation} to key {config.name} because its type is not LIST.",
        )
    if current is None:
        current = context.validator.default_value(resource.type, config.name)
    value = edited_list(current or "", config.config_operation, config.value or "")
    if len(value.encode()) > _MAX_VALUE_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{_MAX_VALUE_BYTES} bytes.",
        )
    return value


def edited_list(current: str, operation: int, value: str) -> str:
    """Return a list with these items appended to it, or subtracted from it.

    An empty item is appended, too, as in Kafka, so that it is refused like one that is set; but
    not those at the end of the value.
    """
    items = [item for item in (part.strip() for part in current.split(",")) if item]
    only_commas = value and not value.strip(",")
    parts = [] if only_commas else value.rstrip(",").split(",")
    for item in (part.strip() for part in parts):
        if operation == APPEND:
            if item not in items:
                items.append(item)
        elif item in items:
            items.remove(item)
    return ",".join(items)


def _records_to(
    resource: ConfigResource, new: Mapping[str, str], context: DecisionContext
) -> list[MetadataRecord]:
    """Return the records from what a resource sets to what it should set."""
    context.validator.validate(resource.type, resource.name, new)
    _check_exists(resource, context)  # last, as in Kafka
    current: Map[str, str] = context.image.config(resource.type, resource.name)
    records: list[MetadataRecord] = [
        ConfigRecord(resource.type, resource.name, key, None)
        for key in sorted(current)
        if key not in new
    ]
    records += [
        ConfigRecord(resource.type, resource.name, key, new[key])
        for key in sorted(new)
        if current.get(key) != new[key]
    ]
    return records
