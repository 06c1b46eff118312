"""The clients' settings: Java's names and defaults, and what is said about wrong ones."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import pytest

from kraftrio.clients.arguments.times import Milliseconds
from kraftrio.clients.config import (
    AdminConfig,
    AdminSettings,
    ClientConfig,
    ClientSettings,
    ProducerConfig,
    ProducerSettings,
    fit_delivery_timeout,
    make_config,
    parse_bootstrap_servers,
)
from kraftrio.clients.errors import ConfigError


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (ClientConfig, ClientSettings),
        (ProducerConfig, ProducerSettings),
        (AdminConfig, AdminSettings),
    ],
)
def test_keyword_arguments_are_the_settings(config: type[ClientConfig], settings: type) -> None:
    """The typed keyword arguments of a client are its settings, with the same types.

    Times may be given as a timedelta, too.
    """
    hints = {
        name: Milliseconds if name.endswith("_ms") else hint
        for name, hint in get_type_hints(config).items()
    }
    del hints["bootstrap_servers"]
    assert get_type_hints(settings) == hints


def test_defaults_are_those_of_the_java_producer() -> None:
    """As Kafka 4.3 documents them."""
    assert {
        field.name: field.default
        for field in fields(ProducerConfig)
        if field.default is not MISSING and field.name in DOCUMENTED
    } == DOCUMENTED
    assert ProducerConfig(bootstrap_servers="x:1").is_idempotent


DOCUMENTED = {
    "acks": "all",
    "batch_size": 16384,
    "buffer_memory": 33554432,
    "client_id": "",
    "compression_type": "none",
    "compression_gzip_level": -1,
    "compression_lz4_level": 9,
    "compression_zstd_level": 3,
    "connections_max_idle_ms": 540000,
    "delivery_timeout_ms": 120000,
    "linger_ms": 5,
    "max_block_ms": 60000,
    "max_in_flight_requests_per_connection": 5,
    "max_request_size": 1048576,
    "metadata_max_age_ms": 300000,
    "metadata_max_idle_ms": 300000,
    "metadata_recovery_rebootstrap_trigger_ms": 300000,
    "metadata_recovery_strategy": "rebootstrap",
    "partitioner_adaptive_partitioning_enable": True,
    "partitioner_availability_timeout_ms": 0,
    "partitioner_ignore_keys": False,
    "reconnect_backoff_max_ms": 1000,
    "reconnect_backoff_ms": 50,
    "request_timeout_ms": 30000,
    "retries": 2147483647,
    "retry_backoff_max_ms": 1000,
    "retry_backoff_ms": 100,
    "socket_connection_setup_timeout_max_ms": 30000,
    "socket_connection_setup_timeout_ms": 10000,
}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"linger": 5}, "unknown setting linger"),
        ({"linger_ms": -1}, "linger_ms must be at least 0, not -1"),
        (
            {"linger_ms": 0.5},
            "linger_ms must be milliseconds as a whole number, or a timedelta, not 0.5",
        ),
        ({"batch_size": True}, "batch_size must be a whole number, not True"),
        ({"acks": "some"}, "acks must be one of all, -1, 0, 1, not 'some'"),
        ({"acks": True}, "acks must be one of"),
        ({"compression_type": "brotli"}, "compression_type must be one of none, gzip, snappy"),
        ({"compression_zstd_level": 23}, "compression_zstd_level must be between -131072 and 22"),
        ({"compression_gzip_level": 0}, "compression_gzip_level must be between 1 and 9, not 0"),
        ({"max_in_flight_requests_per_connection": 0}, "must be at least 1, not 0"),
        ({"enable_idempotence": True, "acks": 1}, 'acks must be "all" for an idempotent'),
        ({"enable_idempotence": True, "retries": 0}, "retries must not be 0"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            "must be at most 5 for an idempotent",
        ),
        ({"delivery_timeout_ms": 30_000}, "delivery_timeout_ms must be at least linger_ms"),
        ({"partitioner_ignore_keys": 1}, "partitioner_ignore_keys must be True or False"),
        ({"metadata_recovery_strategy": "x"}, "must be one of rebootstrap, none, not 'x'"),
        ({"client_id": 3}, "client_id must be a string"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], sentence: str) -> None:
    """One sentence says which setting is wrong, and how."""
    with pytest.raises(ConfigError) as raised:
        make_config(ProducerConfig, "localhost:9092", settings)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "is_idempotent"),
    [
        ({}, True),
        ({"acks": 1}, False),
        ({"acks": "-1"}, True),
        ({"retries": 0}, False),
        ({"max_in_flight_requests_per_connection": 6}, False),
        ({"enable_idempotence": False}, False),
    ],
)
def test_idempotence_gives_way_to_what_was_asked_for(
    settings: dict[str, Any], is_idempotent: bool
) -> None:
    """It is on by default, and off where acks, retries or requests in flight do not allow it."""
    assert make_config(ProducerConfig, "x:1", settings).is_idempotent is is_idempotent


def test_the_default_delivery_timeout_is_never_too_short() -> None:
    """It is raised to what lingering and one request may take; what was asked for stays."""
    assert fit_delivery_timeout({})["delivery_timeout_ms"] == 120_000
    assert fit_delivery_timeout({"linger_ms": 95_000})["delivery_timeout_ms"] == 125_000
    assert fit_delivery_timeout({"delivery_timeout_ms": 7})["delivery_timeout_ms"] == 7


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1", [("a", 1)]),
        (" a:1 , b:65535,", [("a", 1), ("b", 65535)]),
        ("PLAINTEXT://a:1,[::1]:2", [("a", 1), ("::1", 2)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
    ],
)
def test_bootstrap_servers(servers: Any, addresses: list[tuple[str, int]]) -> None:
    """A list or a text with commas; listener names and brackets are allowed, as in Kafka."""
    assert parse_bootstrap_servers(servers) == addresses


@pytest.mark.parametrize("servers", ["", ",", "a", "a:", ":1", "a:0", "a:65536", "a:x", [1]])
def test_wrong_bootstrap_servers(servers: Any) -> None:
    """What is not HOST:PORT is shown."""
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        parse_bootstrap_servers(servers)
