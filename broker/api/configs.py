"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

Behaviour (Kafka's)
- Null or empty keys describe every setting of a resource. A resource named twice in a request, or
  of an unknown type, is answered INVALID_REQUEST for itself; the others are served.
- Changes are checked here (form, and this broker's own properties), then by the controller, which
  owns topics, groups and client metrics; they take effect when the image changes.
- Levels of loggers are changed here, on this broker alone, and last until it stops (KIP-412).
- AlterConfigs replaces all settings of a resource; it cannot change loggers.
Version notes
- DescribeConfigs 1 adds synonyms, 3 types and documentation. ListConfigResources 0 lists client
  metrics only (KIP-714, KIP-1142).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import LEVELS
from kraftrio.broker.api.shared.decision_parts import (
    decide_in_parts,
    is_excessive,
    refuse_excessive,
)
from kraftrio.broker.api.shared.permitted_entries import config_refusal
from kraftrio.broker.config.describe import (
    LOGGER_SOURCE,
    describe_broker,
    describe_client_metrics,
    describe_default_broker,
    describe_group,
    describe_loggers,
    describe_topic,
)
from kraftrio.broker.config.dynamic_config import DynamicConfig, broker_key
from kraftrio.broker.config.types import ConfigKey, ConfigType, PropertyError
from kraftrio.broker.ports import ControllerPort, LoggerPort, MetadataPort
from kraftrio.broker.security.authorizer import AclOperation
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.request_parts import listed
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.controller.configuration_control import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    edited_list,
)
from kraftrio.kraft_meta.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftrio.wire.codec.lazy_arrays import KEPT_ENTRIES, each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.cluster import (
    ListConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kraftrio.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.topic_names import check_topic_name

_OPERATIONS: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
_LISTED_TYPES = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
_AlterResource = AlterConfigsResource | IncrementalAlterConfigsResource


class _Verdict(NamedTuple):
    """The result for one resource that is decided here: an error code, or NONE when it is done."""

    code: ErrorCode
    message: str | None = None


class ConfigHandlers:
    """Serves the config APIs of one broker."""

    def __init__(
        self,
        dynamic: DynamicConfig,
        metadata: MetadataPort,
        controller: ControllerPort,
        loggers: LoggerPort,
    ) -> None:
        self._dynamic = dynamic
        self._metadata = metadata
        self._controller = controller
        self._loggers = loggers
        self._node_id = dynamic.static.node_id

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.ALTER_CONFIGS: self.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
            ApiKey.LIST_CONFIG_RESOURCES: self.list_config_resources,
        }

    # --- describing ---

    def describe_configs(
        self, request: DescribeConfigsRequest, context: RequestContext
    ) -> Work[DescribeConfigsResponse]:
        """Describe each resource asked for."""
        for resource in request.resources:
            keys = resource.configuration_keys
            if keys is not None and len(keys) > KEPT_ENTRIES:
                resource.configuration_keys = yield from self._known_keys(resource, keys)
            yield None

        def describe(resource: DescribeConfigsResource) -> DescribeConfigsResult:
            try:
                _check_visible(resource, context)
                entries = self._describe(resource)
            except KafkaError as error:
                return _describe_failure(resource, error)
            return DescribeConfigsResult(
                error_code=ErrorCode.NONE,
                error_message="",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[_trim(entry, request) for entry in _chosen(entries, resource)],
            )

        return DescribeConfigsResponse(results=each(describe, request.resources))

    def _known_keys(
        self, resource: DescribeConfigsResource, keys: Iterable[str]
    ) -> Work[list[str]]:
        """Reduce very many keys to those that there are; one that is not, if none is."""
        try:
            names = {entry.name for entry in self._describe(resource)}
        except KafkaError:
            names = set()
        known = []
        for key in keys:
            if key in names:
                names.remove(key)
                known.append(key)
            yield None
        return known or [""]

    def _describe(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        kind, name = resource.resource_type, resource.resource_name
        image = self._metadata.image
        if kind == TOPIC:
            check_topic_name(name)
            if image.topic(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            return describe_topic(image.config(TOPIC, name), self._dynamic)
        if kind == BROKER:
            if not name:
                return describe_default_broker(self._dynamic)
            self._check_broker_id(name, "expected {} or empty string, but received {}")
            return describe_broker(self._dynamic)
        if kind == BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            self._check_broker_id(name, "expected {} but received {}")
            return describe_loggers(self._loggers.levels())
        if kind == GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe_group(image.config(GROUP, name), self._dynamic)
        if kind == CLIENT_METRICS:
            if not name:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Client metrics subscription name must not be empty",
                )
            return describe_client_metrics(image.config(CLIENT_METRICS, name), self._dynamic)
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    def _check_broker_id(self, name: str, wanted: str) -> None:
        if _as_id(name) is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
            )
        if _as_id(name) != self._node_id:
            text = wanted.format(self._node_id, name)
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {text}")

    # --- changing ---

    def alter_configs(self, request: AlterConfigsRequest, context: RequestContext) -> Work[Any]:
        """Replace the settings of resources."""
        if (yield from is_excessive(request)):
            return refuse_excessive(request)
        request.resources = yield from listed(request.resources)
        verdicts = yield from self._validated(request.resources, self._validate_replacement)
        forwarded = [
            one for one, verdict in zip(request.resources, verdicts, strict=True) if not verdict
        ]

        def respond(response: AlterConfigsResponse | None) -> AlterConfigsResponse:
            items = _merge(request.resources, verdicts, response, AlterConfigsResourceResponse)
            throttle_ms = response.throttle_time_ms if response else 0
            return AlterConfigsResponse(throttle_time_ms=throttle_ms, responses=items)

        if not forwarded:
            return respond(None)
        return (
            yield from self._forward(
                AlterConfigsRequest(resources=forwarded, validate_only=request.validate_only),
                context,
                respond,
            )
        )

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> Work[Any]:
        """Change single settings of resources (KIP-339)."""
        if (yield from is_excessive(request)):
            return refuse_excessive(request)
        request.resources = yield from listed(request.resources)
        verdicts = yield from self._validated(
            request.resources, lambda one: self._validate_change(one, request.validate_only)
        )
        forwarded = [
            one for one, verdict in zip(request.resources, verdicts, strict=True) if not verdict
        ]

        def respond(
            response: IncrementalAlterConfigsResponse | None,
        ) -> IncrementalAlterConfigsResponse:
            items = _merge(
                request.resources, verdicts, response, IncrementalAlterConfigsResourceResponse
            )
            throttle_ms = response.throttle_time_ms if response else 0
            return IncrementalAlterConfigsResponse(throttle_time_ms=throttle_ms, responses=items)

        if not forwarded:
            return respond(None)
        return (
            yield from self._forward(
                IncrementalAlterConfigsRequest(
                    resources=forwarded, validate_only=request.validate_only
                ),
                context,
                respond,
            )
        )

    def _forward(
        self, request: Any, context: RequestContext, respond: Callable[[Any], Any]
    ) -> Work[Any]:
        decision = yield from decide_in_parts(
            partial(self._controller.submit, api_version=context.api_version), request
        )
        return decision.map(respond) if isinstance(decision, Deferred) else respond(decision)

    def _validated(
        self, resources: list[Any], validate: Callable[[Any], _Verdict | None]
    ) -> Work[list[_Verdict | None]]:
        count = Counter((one.resource_type, one.resource_name) for one in resources)
        verdicts: list[_Verdict | None] = []
        for resource in resources:
            if count[resource.resource_type, resource.resource_name] > 1:
                verdicts.append(
                    _Verdict(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                )
                continue
            try:
                verdicts.append(validate(resource))
            except KafkaError as error:
                verdicts.append(_Verdict(error.code, error.message))
            yield None
        return verdicts

    def _validate_replacement(self, resource: AlterConfigsResource) -> _Verdict | None:
        kind, name = resource.resource_type, resource.resource_name
        _check_type(kind, (TOPIC, BROKER, GROUP, CLIENT_METRICS))
        _check_keys(resource, [one.name for one in resource.configs if one.value is None])
        if kind == BROKER:
            self._check_broker_change(
                name, {one.name: one.value for one in resource.configs if one.value is not None}
            )
        _check_named(kind, name)
        return None

    def _validate_change(
        self, resource: IncrementalAlterConfigsResource, validate_only: bool
    ) -> _Verdict | None:
        kind, name = resource.resource_type, resource.resource_name
        _check_type(kind, (TOPIC, BROKER, BROKER_LOGGER, GROUP, CLIENT_METRICS))
        _check_keys(
            resource,
            [
                one.name
                for one in resource.configs
                if one.value is None and one.config_operation != DELETE
            ],
        )
        if any(one.config_operation not in _OPERATIONS for one in resource.configs):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if kind == BROKER_LOGGER:
            self._change_loggers(resource, validate_only)
            return _Verdict(ErrorCode.NONE)
        if kind == BROKER:
            self._check_broker_change(name, self._changed_broker_configs(resource))
        _check_named(kind, name)
        return None

    def _changed_broker_configs(self, resource: IncrementalAlterConfigsResource) -> dict[str, str]:
        """What a broker's dynamic configs will be."""
        image = self._metadata.image
        configs = dict(image.config(BROKER, resource.resource_name))
        for one in resource.configs:
            if one.config_operation == DELETE:
                configs.pop(one.name, None)
            elif one.config_operation == SET and one.value is not None:
                configs[one.name] = one.value
            elif (key := broker_key(one.name)) is not None and one.value is not None:
                configs[one.name] = self._edited_list(key, configs.get(one.name), one)
        return configs

    def _edited_list(
        self, key: ConfigKey, current: str | None, change: IncrementalAlterableConfig
    ) -> str:
        """A list of a broker with items appended or subtracted."""
        if key.type is not ConfigType.LIST:
            operation = _OPERATIONS[change.config_operation].lower()
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Config value {operation} is not allowed for config key: {change.name}",
            )
        if current is None:
            current = self._dynamic.text_of(change.name)
        return edited_list(current or "", change.config_operation, change.value or "")

    def _check_broker_change(self, name: str, configs: Mapping[str, str]) -> None:
        if name:
            broker_id = _as_id(name)
            if broker_id is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
                )
            if broker_id != self._node_id:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected broker id, expected {self._node_id}, but received {name}",
                )
        try:
            self._dynamic.validate(configs, per_broker=bool(name))
        except PropertyError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _change_loggers(
        self, resource: IncrementalAlterConfigsResource, validate_only: bool
    ) -> None:
        name = resource.resource_name
        if _as_id(name) is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
            )
        if _as_id(name) != self._node_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected node id. Expected {self._node_id}, but received {name}",
            )
        known = self._loggers.levels()
        for change in resource.configs:
            _check_logger_change(change.name, change.config_operation, change.value, known)
        if not validate_only:
            for change in resource.configs:
                self._loggers.set_level(
                    change.name, None if change.config_operation == DELETE else change.value
                )

    # --- listing ---

    def list_config_resources(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> ListConfigResourcesResponse:
        """List what may have settings, by type; no types mean all of them."""
        types = request.resource_types or list(_LISTED_TYPES)
        if context.api_version == 0:
            types = [CLIENT_METRICS]
        if any(kind not in _LISTED_TYPES for kind in types):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        image = self._metadata.image
        brokers = [str(broker.broker_id) for broker in image.alive_brokers()]
        names = {
            GROUP: sorted(one.name for one in image.configs if one.type == GROUP),
            CLIENT_METRICS: sorted(one.name for one in image.configs if one.type == CLIENT_METRICS),
            BROKER_LOGGER: brokers,
            BROKER: brokers,
            TOPIC: sorted(image.topics_by_name) if TOPIC in types else [],
        }
        return ListConfigResourcesResponse(
            config_resources=each(
                lambda one: ListConfigResource(resource_name=one[1], resource_type=one[0]),
                [(kind, name) for kind in _LISTED_TYPES if kind in types for name in names[kind]],
            )
        )


def _as_id(name: str) -> int | None:
    digits = name[1:] if name[:1] == "-" else name
    return int(name) if digits.isascii() and digits.isdigit() else None


def _chosen(
    entries: list[DescribeConfigsResourceResult], resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    wanted = resource.configuration_keys
    if not wanted:
        return entries
    return [entry for entry in entries if entry.name in wanted]


def _trim(
    entry: DescribeConfigsResourceResult, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    """Leave out what was not asked for."""
    if not request.include_synonyms:
        entry.synonyms = []
    if not request.include_documentation and entry.config_source != LOGGER_SOURCE:
        entry.documentation = None
    return entry


def _check_visible(resource: DescribeConfigsResource, context: RequestContext) -> None:
    """Raise KafkaError unless a client may describe a configuration."""
    code = config_refusal(
        context, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
    )
    if code is not ErrorCode.NONE:
        raise KafkaError(code)


def _describe_failure(
    resource: DescribeConfigsResource, error: KafkaError
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.code.sentence if error.message is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _check_type(kind: int, allowed: tuple[int, ...]) -> None:
    if kind not in allowed:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _check_named(kind: int, name: str) -> None:
    if kind == TOPIC and not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    if kind == GROUP and not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if kind == CLIENT_METRICS and not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")


def _check_keys(resource: _AlterResource, without_value: list[str]) -> None:
    names = [one.name for one in resource.configs]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}"
        )


def _check_logger_change(
    name: str, operation: int, value: str | None, known: Mapping[str, str]
) -> None:
    if operation in (APPEND, SUBTRACT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{_OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource",
        )
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == SET and value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )
    if operation == DELETE and name == "root":
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )


def _merge(
    resources: Sequence[_AlterResource],
    verdicts: Sequence[_Verdict | None],
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse | None,
    item: type[Any],
) -> list[Any]:
    """Answer each resource in the order of the request: by our verdict or the controller's."""
    answers = {
        (one.resource_type, one.resource_name): one
        for one in (response.responses if response is not None else ())
    }

    def answer(index: int) -> Any:
        resource, verdict = resources[index], verdicts[index]
        kind, name = resource.resource_type, resource.resource_name
        if verdict is None and (kind, name) in answers:
            return answers[kind, name]
        code = verdict.code if verdict is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        return item(
            error_code=code,
            error_message=verdict.message if verdict is not None else None,
            resource_type=kind,
            resource_name=name,
        )

    return each(answer, range(len(resources)))
