"""Kafka brokers for tests: with real sockets for any client, or in virtual time for Trio programs.

`KafkaBroker` and `KafkaCluster` are context managers; the fixtures `kafka_broker` and
`kafka_cluster` come with the pytest plugin (`pip install kraftrio[testing]`). docs/testing/ shows
how to use them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftrio.testing.cluster import KafkaBroker as KafkaBroker
    from kraftrio.testing.cluster import KafkaCluster as KafkaCluster

__all__ = ["KafkaBroker", "KafkaCluster"]

_HOMES = {
    "KafkaBroker": "kraftrio.testing.cluster",
    "KafkaCluster": "kraftrio.testing.cluster",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
