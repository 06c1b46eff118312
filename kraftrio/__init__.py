"""kraftrio: a Kafka-compatible message broker in Python on Trio, and clients for it and for Kafka.

The clients are imported when they are first asked for, so that a broker does not pay for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftrio.clients.admin import Admin as Admin
    from kraftrio.clients.consumer import Consumer as Consumer
    from kraftrio.clients.producer import Producer as Producer
    from kraftrio.clients.producer import RecordMetadata as RecordMetadata
    from kraftrio.wire.primitives import TopicPartition as TopicPartition

__version__ = "0.1.0"

__all__ = ["Admin", "Consumer", "Producer", "RecordMetadata", "TopicPartition", "__version__"]

_HOMES = {
    "Admin": "kraftrio.clients.admin",
    "Consumer": "kraftrio.clients.consumer",
    "Producer": "kraftrio.clients.producer",
    "RecordMetadata": "kraftrio.clients.producer",
    "TopicPartition": "kraftrio.wire.primitives",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
