"""The admin client's calls about settings of topics, brokers and groups.

Called by: `admin`. KIP-133, KIP-226, KIP-339.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftrio.clients.admin.calls import AdminCalls, Deadline, collect
from kraftrio.clients.admin.types import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    OpType,
    Results,
)
from kraftrio.clients.arguments.several import by_item, several
from kraftrio.clients.arguments.values import ConfigValue, config_value, text
from kraftrio.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

ConfigChanges = AlterConfigOp | Iterable[AlterConfigOp] | Mapping[str, ConfigValue | None]
"""Changes of single settings; a dict sets them, and takes those back that are None."""

_BROKERS_OWN = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


async def describe_configs(
    calls: AdminCalls,
    deadline: Deadline,
    resources: ConfigResource | Iterable[ConfigResource],
    *,
    include_documentation: bool = False,
) -> Results[ConfigResource, dict[str, ConfigEntry]]:
    """Return the settings of topics, brokers, groups, by name."""
    results: Results[ConfigResource, dict[str, ConfigEntry]] = Results({}, {})
    for node_id, part in _by_broker(several("resources", resources, ConfigResource)).items():
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None,
                )
                for resource in part
            ],
            include_documentation=include_documentation,
        )
        response: DescribeConfigsResponse = await calls.ask_node(node_id, request, deadline)
        results = results.joined(
            collect(
                (
                    _resource(reported.resource_type, reported.resource_name),
                    reported.error_code,
                    reported.error_message,
                    {entry.name: _entry(entry) for entry in reported.configs},
                )
                for reported in response.results
            ),
        )
    return results


async def incremental_alter_configs(
    calls: AdminCalls,
    deadline: Deadline,
    changes: Mapping[ConfigResource, ConfigChanges],
    *,
    validate_only: bool = False,
) -> Results[ConfigResource, None]:
    """Change single settings; those not named stay as they are."""
    results: Results[ConfigResource, None] = Results({}, {})
    for node_id, part in _by_broker(by_item("changes", changes)).items():
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[_alterable(change) for change in _operations(changes[resource])],
                )
                for resource in part
            ],
            validate_only=validate_only,
        )
        response: IncrementalAlterConfigsResponse = await calls.ask_node(node_id, request, deadline)
        results = results.joined(
            collect(
                (
                    _resource(reported.resource_type, reported.resource_name),
                    reported.error_code,
                    reported.error_message,
                    None,
                )
                for reported in response.responses
            ),
        )
    return results


def _operations(given: ConfigChanges) -> list[AlterConfigOp]:
    if isinstance(given, Mapping):
        return [
            AlterConfigOp(name, value, OpType.DELETE if value is None else OpType.SET)
            for name, value in given.items()
        ]
    return several("changes of one resource", given, AlterConfigOp)


def _alterable(change: AlterConfigOp) -> IncrementalAlterableConfig:
    if not isinstance(change, AlterConfigOp):
        raise TypeError(f"a change must be an AlterConfigOp, not {change!r}")
    name = text("a setting", change.name)
    return IncrementalAlterableConfig(
        name=name,
        config_operation=OpType(change.op),
        value=config_value(name, change.value),
    )


def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Group by the broker that must be asked: a broker's own settings only it knows."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        if not isinstance(resource, ConfigResource):
            raise TypeError(f"a resource must be a ConfigResource, not {resource!r}")
        name = text("the name of a resource", resource.name)
        own = resource.type in _BROKERS_OWN and name.isdecimal()
        groups.setdefault(int(resource.name) if own else None, []).append(resource)
    return groups


def _resource(kind: int, name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType(kind), name)


def _entry(reported: DescribeConfigsResourceResult) -> ConfigEntry:
    known = reported.config_source in set(ConfigSource)
    return ConfigEntry(
        reported.name,
        reported.value,
        ConfigSource(reported.config_source) if known else ConfigSource.UNKNOWN,
        reported.is_sensitive,
        reported.read_only,
        reported.documentation,
    )
