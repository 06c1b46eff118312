"""Checks of the broker's settings for groups against each other: bounds, defaults, assignors.

Rules, Kafka's: what a group has unless it sets it itself lies between the least and the most that
groups may set; members send heartbeats more often than their session runs out; share groups have
one assignor. Called by `config/checks`; raises `PropertyError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftrio.broker.config.types import ConfigValue, PropertyError

Value = Callable[[str], ConfigValue]

KINDS: Final = ("consumer", "share", "streams")
"""Kinds of group with settings of their own."""

CONSUMER_ASSIGNORS: Final = ("uniform", "range")
SHARE_ASSIGNORS: Final = ("simple",)


def check_groups(value: Value) -> None:
    """Check all of them.

    Args:
        value: gives a setting by its name.
    """
    _check_not_above(value, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    for kind in KINDS:
        for setting in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            _check_bounds(value, kind, setting)
        heartbeat = f"group.{kind}.heartbeat.interval.ms"
        session = f"group.{kind}.session.timeout.ms"
        if _number(value, heartbeat) >= _number(value, session):
            raise PropertyError(
                f"{heartbeat} is {value(heartbeat)}: it must be below {session}, which is"
                f" {value(session)}"
            )
    for setting in (
        "delivery.count.limit",
        "record.lock.duration.ms",
        "partition.max.record.locks",
    ):
        _check_bounds(value, "share", setting)
    _check_not_above(value, "group.share.max.size", "group.share.max.share.sessions")
    _check_not_above(
        value, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    )
    _check_assignors(value, "group.consumer.assignors", CONSUMER_ASSIGNORS)
    _check_assignors(value, "group.share.assignors", SHARE_ASSIGNORS)


def _number(value: Value, name: str) -> int:
    found = value(name)
    assert isinstance(found, int)
    return found


def _check_bounds(value: Value, kind: str, setting: str) -> None:
    least, most = f"group.{kind}.min.{setting}", f"group.{kind}.max.{setting}"
    _check_not_above(value, least, most)
    _check_not_above(value, least, f"group.{kind}.{setting}")
    _check_not_above(value, f"group.{kind}.{setting}", most)


def _check_not_above(value: Value, low_name: str, high_name: str) -> None:
    low, high = _number(value, low_name), _number(value, high_name)
    if low > high:
        raise PropertyError(
            f"{low_name} is {low}: it must not be above {high_name}, which is {high}"
        )


def _check_assignors(value: Value, name: str, known: tuple[str, ...]) -> None:
    names = value(name)
    assert isinstance(names, list)
    if not names or len(set(names)) != len(names) or not set(names) <= set(known):
        wanted = f"{known[0]}" if len(known) == 1 else f"one or more of {', '.join(known)}, once"
        raise PropertyError(
            f"{name} is {','.join(names)}: it must be {wanted}; Java classes cannot be run"
        )
