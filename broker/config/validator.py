"""The controller's view of settings: which are allowed, which are lists, what their defaults are.

Owns `NodeConfigValidator`, which keeps the contracts of kraft_meta's `ConfigValidator` and
`TopicConfigs`. The controller knows no broker property itself; this keeps Kafka's names out of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.broker.config.describe import describe_topic
from kraftrio.broker.config.dynamic_config import DynamicConfig, broker_key, validate_broker_configs
from kraftrio.broker.config.group_config import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    validate_client_metrics_configs,
    validate_group_configs,
)
from kraftrio.broker.config.topic_config import TOPIC_KEYS, broker_default, validate_topic_configs
from kraftrio.broker.config.types import ConfigKey, ConfigType, PropertyError
from kraftrio.kraft_meta.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import CreatableTopicConfigs


def config_key(resource_type: int, name: str) -> ConfigKey | None:
    """Return a setting of a resource type."""
    if resource_type == TOPIC:
        return TOPIC_KEYS.get(name)
    if resource_type == BROKER:
        return broker_key(name)
    if resource_type == GROUP:
        return GROUP_KEYS.get(name)
    if resource_type == CLIENT_METRICS:
        return CLIENT_METRICS_KEYS.get(name)
    return None


class NodeConfigValidator:
    """Checks settings with this node's own configuration as the defaults."""

    def __init__(self, dynamic: DynamicConfig) -> None:
        self._dynamic = dynamic

    def validate(self, resource_type: int, name: str, configs: Mapping[str, str]) -> None:
        """Check all settings of a resource as they would be.

        Raises:
            KafkaError: INVALID_CONFIG or INVALID_REQUEST, with the sentence for the client.
        """
        if resource_type == TOPIC:
            validate_topic_configs(configs, self._dynamic.current)
        elif resource_type == GROUP:
            validate_group_configs(configs, self._dynamic.current)
        elif resource_type == CLIENT_METRICS:
            validate_client_metrics_configs(name, configs)
        elif resource_type == BROKER:
            try:
                validate_broker_configs(configs, self._dynamic.static, per_broker=bool(name))
            except PropertyError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether a setting is a list that APPEND and SUBTRACT may change.

        Those of client metrics are only set, as in Kafka.
        """
        if resource_type == CLIENT_METRICS:
            return False
        found = config_key(resource_type, key)
        return found is not None and found.type is ConfigType.LIST

    def default_value(self, resource_type: int, key: str) -> str | None:
        """Return what a setting is when the resource does not set it."""
        if resource_type == BROKER:
            return self._dynamic.text_of(key)
        found = config_key(resource_type, key)
        return None if found is None else broker_default(found, self._dynamic.current)

    def describe_topic_configs(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Return every setting of a topic that sets these itself, for CreateTopics (KIP-525)."""
        return [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.config_source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in describe_topic(overrides, self._dynamic)
        ]
