"""Kafka brokers for tests: with real sockets for any client, or in virtual time for Trio programs.

`KafkaBroker` and `KafkaCluster` are context managers, `KafkaWorld` runs an async function; the
fixtures `kafka_broker`, `kafka_cluster` and `kafka_world` come with the pytest plugin
(`pip install kraftrio[testing]`). docs/testing/ shows how to use them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftrio.testing import checks as checks
    from kraftrio.testing.cluster import KafkaBroker as KafkaBroker
    from kraftrio.testing.cluster import KafkaCluster as KafkaCluster
    from kraftrio.testing.faults.plan import Fault as Fault
    from kraftrio.testing.kafka_world import KafkaWorld as KafkaWorld
    from kraftrio.testing.snapshots.errors import SnapshotError as SnapshotError
    from kraftrio.testing.snapshots.snapshot import Snapshot as Snapshot
    from kraftrio.testing.waiting import WaitTimedOut as WaitTimedOut

__all__ = [
    "Fault",
    "KafkaBroker",
    "KafkaCluster",
    "KafkaWorld",
    "Snapshot",
    "SnapshotError",
    "WaitTimedOut",
    "checks",
]

_HOMES = {
    "Fault": "kraftrio.testing.faults.plan",
    "KafkaBroker": "kraftrio.testing.cluster",
    "KafkaCluster": "kraftrio.testing.cluster",
    "KafkaWorld": "kraftrio.testing.kafka_world",
    "Snapshot": "kraftrio.testing.snapshots.snapshot",
    "SnapshotError": "kraftrio.testing.snapshots.errors",
    "WaitTimedOut": "kraftrio.testing.waiting",
}


def __getattr__(name: str) -> Any:
    if name == "checks":
        return import_module("kraftrio.testing.checks")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
