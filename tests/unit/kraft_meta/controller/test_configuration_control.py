"""AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.kraft_meta.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.unit.kraft_meta.controller.context import ControllerContext

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Op = tuple[str, int, str | None]


def context_with_topic(**settings: Any) -> ControllerContext:
    context = ControllerContext(**settings)
    context.start_brokers(1)
    context.create("t", [1])
    return context


def incremental(
    context: ControllerContext, *resources: tuple[int, str, list[Op]], **options: Any
) -> list[int]:
    response = context.send(
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        IncrementalAlterableConfig(name=key, config_operation=op, value=value)
                        for key, op, value in ops
                    ],
                )
                for kind, name, ops in resources
            ],
            **options,
        )
    )
    return [r.error_code for r in response.responses]


def replace(
    context: ControllerContext,
    *resources: tuple[int, str, dict[str, str | None]],
    **options: Any,
) -> list[int]:
    response = context.send(
        AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[AlterableConfig(name=k, value=v) for k, v in configs.items()],
                )
                for kind, name, configs in resources
            ],
            **options,
        )
    )
    return [r.error_code for r in response.responses]


def configs(context: ControllerContext, name: str = "t", kind: int = TOPIC) -> dict[str, str]:
    return dict(context.image.config(kind, name))


def test_set_and_delete_single_keys() -> None:
    """Other keys stay; deleting ignores the value and what is not set."""
    context = context_with_topic()
    assert incremental(
        context, (TOPIC, "t", [("retention.ms", SET, "1"), ("cleanup.policy", SET, "compact")])
    ) == [0]
    assert configs(context) == {"retention.ms": "1", "cleanup.policy": "compact"}
    assert incremental(context, (TOPIC, "t", [("retention.ms", DELETE, "ignored")])) == [0]
    assert configs(context) == {"cleanup.policy": "compact"}
    assert incremental(context, (TOPIC, "t", [("retention.ms", DELETE, None)])) == [0]
    assert context.last_records == []


def test_append_and_subtract_act_on_lists_without_repetitions() -> None:
    """The value "delete,compact" is two items; the default is where APPEND starts."""
    context = context_with_topic()
    key = "cleanup.policy"
    for op, value, expected in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "delete,compact", "delete,compact"),
        (SUBTRACT, "delete,other", "compact"),
        (APPEND, "delete", "compact,delete"),
        (SUBTRACT, "compact,delete", ""),
    ]:
        assert incremental(context, (TOPIC, "t", [(key, op, value)])) == [0]
        assert configs(context) == {key: expected}


def test_a_list_does_not_grow_longer_than_a_response_can_hold() -> None:
    """What is appended counts together with what is there."""
    context = context_with_topic()
    key = "follower.replication.throttled.replicas"
    first, second = (",".join(f"{n}:{broker}" for n in range(3000)) for broker in (1, 2))
    assert incremental(context, (TOPIC, "t", [(key, APPEND, first)])) == [0]
    codes = incremental(context, (TOPIC, "t", [(key, APPEND, second)]))
    assert codes == [ErrorCode.INVALID_CONFIG]
    assert configs(context) == {key: first}


def test_setting_the_same_value_records_nothing() -> None:
    """Only changes reach the log."""
    context = context_with_topic()
    incremental(context, (TOPIC, "t", [("retention.ms", SET, "1")]))
    incremental(context, (TOPIC, "t", [("retention.ms", SET, "1")]))
    assert context.last_records == []


@pytest.mark.parametrize(
    ("kind", "name", "ops", "code"),
    [
        (TOPIC, "x", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", [], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "t", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, "1"), ("retention.ms", SET, "1")],
            ErrorCode.INVALID_REQUEST,
        ),
        (BROKER, "one", [], ErrorCode.INVALID_REQUEST),
        (BROKER, "9", [], ErrorCode.BROKER_ID_NOT_REGISTERED),
        (GROUP, "", [], ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", [], ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", [], ErrorCode.INVALID_REQUEST),
        (77, "t", [], ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_changes(kind: int, name: str, ops: list[Op], code: ErrorCode) -> None:
    """Each has its code and records nothing."""
    context = context_with_topic()
    assert incremental(context, (kind, name, ops)) == [code]
    assert context.last_records == []


def test_a_resource_changes_whole_or_not_at_all() -> None:
    """One wrong key spoils its resource, not the others."""
    context = context_with_topic()
    context.create("u", [1])
    codes = incremental(
        context,
        (TOPIC, "t", [("retention.ms", SET, "1"), ("no.such", SET, "1")]),
        (TOPIC, "u", [("retention.ms", SET, "1")]),
    )
    assert codes == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert configs(context, "t") == {}
    assert configs(context, "u") == {"retention.ms": "1"}


def test_a_resource_twice_in_a_request_is_refused() -> None:
    """INVALID_REQUEST once, for either API."""
    context = context_with_topic()
    op: list[Op] = [("retention.ms", SET, "1")]
    assert incremental(context, (TOPIC, "t", op), (TOPIC, "t", op)) == [ErrorCode.INVALID_REQUEST]
    assert replace(context, (TOPIC, "t", {}), (TOPIC, "t", {})) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("kind", "name"), [(BROKER, ""), (BROKER, "1"), (GROUP, "g"), (CLIENT_METRICS, "m")]
)
def test_other_resources_are_configured_too(kind: int, name: str) -> None:
    """Brokers, all brokers (""), groups and client metrics."""
    context = context_with_topic()
    assert incremental(context, (kind, name, [("log.retention.ms", SET, "1")])) == [0]
    assert configs(context, name, kind) == {"log.retention.ms": "1"}


def test_controllers_are_configured_like_brokers() -> None:
    """By their node ids, though they are not registered as brokers."""
    context = context_with_topic(controller_ids=(3000,))
    ops: list[Op] = [("log.retention.ms", SET, "1")]
    assert incremental(context, (BROKER, "3000", ops)) == [ErrorCode.NONE]
    assert incremental(context, (BROKER, "3001", ops)) == [ErrorCode.BROKER_ID_NOT_REGISTERED]


def test_alter_configs_replaces_everything() -> None:
    """What the request does not name is removed; null values are refused."""
    context = context_with_topic()
    replace(context, (TOPIC, "t", {"retention.ms": "1", "cleanup.policy": "compact"}))
    assert replace(context, (TOPIC, "t", {"retention.ms": "2"})) == [0]
    assert configs(context) == {"retention.ms": "2"}
    assert replace(context, (TOPIC, "t", {"retention.ms": None})) == [ErrorCode.INVALID_REQUEST]
    assert replace(context, (TOPIC, "x", {})) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert replace(context, (TOPIC, "t", {"retention.ms": "x"})) == [ErrorCode.INVALID_CONFIG]
    assert configs(context) == {"retention.ms": "2"}


def test_validate_only_records_nothing() -> None:
    """Both APIs answer as they would."""
    context = context_with_topic()
    op: list[Op] = [("retention.ms", SET, "1")]
    assert incremental(context, (TOPIC, "t", op), validate_only=True) == [0]
    assert context.last_records == []
    assert replace(context, (TOPIC, "t", {"retention.ms": "1"}), validate_only=True) == [0]
    assert context.last_records == []
