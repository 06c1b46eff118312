"""kraftrio: a Kafka-compatible message broker in Python on Trio, and clients for it and for Kafka.

The clients are imported when they are first asked for, so that a broker does not pay for them. The
data sources for Spark want pyspark (`kraftrio[spark]`); so they are not among what `*` brings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraftrio.base.version import VERSION as __version__

if TYPE_CHECKING:
    from kraftrio.clients.admin.admin import Admin as Admin
    from kraftrio.clients.admin.types import NewTopic as NewTopic
    from kraftrio.clients.consumer.consumer import Consumer as Consumer
    from kraftrio.clients.consumer.listener import RebalanceListener as RebalanceListener
    from kraftrio.clients.consumer.records import ConsumerBatch as ConsumerBatch
    from kraftrio.clients.consumer.records import ConsumerRecord as ConsumerRecord
    from kraftrio.clients.consumer.subscription import SubscriptionPattern as SubscriptionPattern
    from kraftrio.clients.group_offsets import OffsetAndMetadata as OffsetAndMetadata
    from kraftrio.clients.producer.batch import RecordMetadata as RecordMetadata
    from kraftrio.clients.producer.producer import Producer as Producer
    from kraftrio.clients.share.acknowledgements import AcknowledgeType as AcknowledgeType
    from kraftrio.clients.share.consumer import ShareConsumer as ShareConsumer
    from kraftrio.clients.share.records import ShareBatch as ShareBatch
    from kraftrio.clients.share.records import ShareRecord as ShareRecord
    from kraftrio.clients.spark.log_source import KraftrioLogSource as KraftrioLogSource
    from kraftrio.clients.spark.source import KraftrioSource as KraftrioSource
    from kraftrio.wire.primitives import TopicPartition as TopicPartition

__all__ = [
    "AcknowledgeType",
    "Admin",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "ShareBatch",
    "ShareConsumer",
    "ShareRecord",
    "SubscriptionPattern",
    "TopicPartition",
    "__version__",
]

_HOMES = {
    "AcknowledgeType": "kraftrio.clients.share.acknowledgements",
    "Admin": "kraftrio.clients.admin.admin",
    "Consumer": "kraftrio.clients.consumer.consumer",
    "ConsumerBatch": "kraftrio.clients.consumer.records",
    "ConsumerRecord": "kraftrio.clients.consumer.records",
    "KraftrioLogSource": "kraftrio.clients.spark.log_source",
    "KraftrioSource": "kraftrio.clients.spark.source",
    "NewTopic": "kraftrio.clients.admin.types",
    "OffsetAndMetadata": "kraftrio.clients.group_offsets",
    "Producer": "kraftrio.clients.producer.producer",
    "RebalanceListener": "kraftrio.clients.consumer.listener",
    "RecordMetadata": "kraftrio.clients.producer.batch",
    "ShareBatch": "kraftrio.clients.share.records",
    "ShareConsumer": "kraftrio.clients.share.consumer",
    "ShareRecord": "kraftrio.clients.share.records",
    "SubscriptionPattern": "kraftrio.clients.consumer.subscription",
    "TopicPartition": "kraftrio.wire.primitives",
}
_OF_SPARK = {"pyspark", "pyarrow"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(home)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _OF_SPARK:
            raise
        raise ModuleNotFoundError(
            f"kraftrio.{name} needs {missing}: pip install 'kraftrio[spark]'", name=error.name
        ) from error
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
