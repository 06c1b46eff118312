"""Tests for broker/config/dynamic_checks.py."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.config.types import PropertyError


def refusal(configs: Mapping[str, str], *, per_broker: bool) -> str:
    """Why a broker with two directories does not change its settings; empty if it does."""
    static = BrokerConfig({"log.dirs": "/one,/two"})
    try:
        DynamicConfig(static, lambda _: None).validate(configs, per_broker=per_broker)
    except PropertyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("per_broker", [True, False])
@pytest.mark.parametrize(
    ("name", "allowed", "refused", "sentence"),
    [
        ("num.io.threads", "16", "17", "should not be greater than double the current value 8"),
        ("num.io.threads", "4", "3", "should be at least half the current value 8"),
        ("background.threads", "20", "21", "double the current value 10"),
        ("num.replica.fetchers", "2", "3", "failed for num.replica.fetchers=3"),
        ("num.recovery.threads.per.data.dir", "4", "5", "double the current value 2"),
        ("remote.log.reader.threads", "5", "4", "half the current value 10"),
        ("log.cleaner.threads", "2", "3", "more than double the current value 1"),
        ("log.cleaner.dedupe.buffer.size", "2097152", "1048576", "at least 1MB per cleaner thread"),
        ("max.connection.creation.rate", "1", "0", "Invalid max.connection.creation.rate 0"),
        ("max.connections", "1", "0", "Invalid max.connections 0"),
        ("max.connections.per.ip", "1", "0", "only if max.connections.per.ip.overrides"),
    ],
)
def test_limits_of_a_change(
    name: str, allowed: str, refused: str, sentence: str, per_broker: bool
) -> None:
    """Those of Kafka, also for all brokers at once, and where nothing here has such threads."""
    assert refusal({name: allowed}, per_broker=per_broker) == ""
    assert sentence in refusal({name: refused}, per_broker=per_broker)


def test_limits_of_a_listener() -> None:
    """With its prefix the same limits hold."""
    name = "listener.name.plaintext.max.connections"
    assert refusal({name: "1"}, per_broker=True) == ""
    assert refusal({name: "0"}, per_broker=True) == "Invalid max.connections 0"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("/one", ""),
        ("*", ""),
        ("/one,/two", ""),
        ("/one,/nine,/ten", "Missing entries : /nine, /ten"),
        ("/one,*", "When cordoned.log.dirs is set to *, it must not contain other values"),
        ("/one,", "Configuration 'cordoned.log.dirs' values must not be empty."),
    ],
)
def test_cordoned_directories(value: str, sentence: str) -> None:
    """They are directories of this broker, or all of them."""
    found = refusal({"cordoned.log.dirs": value}, per_broker=True)
    assert sentence in found
    assert bool(found) == bool(sentence)
