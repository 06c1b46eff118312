"""kraftrio: a Kafka-compatible message broker in Python on Trio, and clients for it and for Kafka.

The clients are imported when they are first asked for, so that a broker does not pay for them. The
data sources for Spark want pyspark (`kraftrio[spark]`); so they are not among what `*` brings. All
errors are in `kraftrio.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraftrio.base.version import VERSION as __version__

if TYPE_CHECKING:
    from kraftrio.clients.admin.admin import Admin as Admin
    from kraftrio.clients.admin.groups import CommittedOffset as CommittedOffset
    from kraftrio.clients.admin.security.acls import Acl as Acl
    from kraftrio.clients.admin.security.acls import AclFilter as AclFilter
    from kraftrio.clients.admin.security.client_quotas import QuotaEntity as QuotaEntity
    from kraftrio.clients.admin.security.client_quotas import QuotaFilter as QuotaFilter
    from kraftrio.clients.admin.security.delegation_tokens import DelegationToken as DelegationToken
    from kraftrio.clients.admin.security.scram_users import (
        ScramCredentialInfo as ScramCredentialInfo,
    )
    from kraftrio.clients.admin.security.scram_users import ScramDeletion as ScramDeletion
    from kraftrio.clients.admin.security.scram_users import ScramPassword as ScramPassword
    from kraftrio.clients.admin.types import AbortTransactionSpec as AbortTransactionSpec
    from kraftrio.clients.admin.types import AlterConfigOp as AlterConfigOp
    from kraftrio.clients.admin.types import ClusterDescription as ClusterDescription
    from kraftrio.clients.admin.types import ConfigEntry as ConfigEntry
    from kraftrio.clients.admin.types import ConfigResource as ConfigResource
    from kraftrio.clients.admin.types import ConfigResourceType as ConfigResourceType
    from kraftrio.clients.admin.types import ConfigSource as ConfigSource
    from kraftrio.clients.admin.types import CreatedTopic as CreatedTopic
    from kraftrio.clients.admin.types import ElectionType as ElectionType
    from kraftrio.clients.admin.types import FencedProducer as FencedProducer
    from kraftrio.clients.admin.types import GroupDescription as GroupDescription
    from kraftrio.clients.admin.types import GroupListing as GroupListing
    from kraftrio.clients.admin.types import ListedOffset as ListedOffset
    from kraftrio.clients.admin.types import LogDirDescription as LogDirDescription
    from kraftrio.clients.admin.types import MemberDescription as MemberDescription
    from kraftrio.clients.admin.types import NewTopic as NewTopic
    from kraftrio.clients.admin.types import OffsetSpec as OffsetSpec
    from kraftrio.clients.admin.types import OpType as OpType
    from kraftrio.clients.admin.types import PartitionLag as PartitionLag
    from kraftrio.clients.admin.types import PartitionReassignment as PartitionReassignment
    from kraftrio.clients.admin.types import ProducerState as ProducerState
    from kraftrio.clients.admin.types import QuorumInfo as QuorumInfo
    from kraftrio.clients.admin.types import QuorumReplica as QuorumReplica
    from kraftrio.clients.admin.types import ReplicaInfo as ReplicaInfo
    from kraftrio.clients.admin.types import Results as Results
    from kraftrio.clients.admin.types import ShareGroupDescription as ShareGroupDescription
    from kraftrio.clients.admin.types import ShareMemberDescription as ShareMemberDescription
    from kraftrio.clients.admin.types import SharePartitionOffset as SharePartitionOffset
    from kraftrio.clients.admin.types import StreamsGroupDescription as StreamsGroupDescription
    from kraftrio.clients.admin.types import StreamsMemberDescription as StreamsMemberDescription
    from kraftrio.clients.admin.types import StreamsSubtopology as StreamsSubtopology
    from kraftrio.clients.admin.types import StreamsTasks as StreamsTasks
    from kraftrio.clients.admin.types import TopicListing as TopicListing
    from kraftrio.clients.admin.types import TransactionDescription as TransactionDescription
    from kraftrio.clients.admin.types import TransactionListing as TransactionListing
    from kraftrio.clients.config import AdminConfig as AdminConfig
    from kraftrio.clients.config import ProducerConfig as ProducerConfig
    from kraftrio.clients.consumer.committed import CommittedRecords as CommittedRecords
    from kraftrio.clients.consumer.config import ConsumerConfig as ConsumerConfig
    from kraftrio.clients.consumer.consumer import Consumer as Consumer
    from kraftrio.clients.consumer.listener import RebalanceListener as RebalanceListener
    from kraftrio.clients.consumer.offsets import OffsetAndTimestamp as OffsetAndTimestamp
    from kraftrio.clients.consumer.records import ConsumerBatch as ConsumerBatch
    from kraftrio.clients.consumer.records import ConsumerRecord as ConsumerRecord
    from kraftrio.clients.consumer.records import ConsumerRecords as ConsumerRecords
    from kraftrio.clients.consumer.subscription import SubscriptionPattern as SubscriptionPattern
    from kraftrio.clients.diagnostics.statistics import ClusterStatistics as ClusterStatistics
    from kraftrio.clients.diagnostics.statistics import ConsumerStatistics as ConsumerStatistics
    from kraftrio.clients.diagnostics.statistics import ProducerStatistics as ProducerStatistics
    from kraftrio.clients.diagnostics.statistics import (
        ShareConsumerStatistics as ShareConsumerStatistics,
    )
    from kraftrio.clients.errors.kinds import KafkaClientError as KafkaClientError
    from kraftrio.clients.errors.kinds import RetriableError as RetriableError
    from kraftrio.clients.group_offsets import GroupMetadata as GroupMetadata
    from kraftrio.clients.group_offsets import OffsetAndMetadata as OffsetAndMetadata
    from kraftrio.clients.metadata import BrokerAddress as BrokerAddress
    from kraftrio.clients.metadata import PartitionMetadata as PartitionMetadata
    from kraftrio.clients.metadata import TopicMetadata as TopicMetadata
    from kraftrio.clients.producer.batch import Delivery as Delivery
    from kraftrio.clients.producer.batch import RecordMetadata as RecordMetadata
    from kraftrio.clients.producer.producer import Producer as Producer
    from kraftrio.clients.producer.transactions.transaction import Transaction as Transaction
    from kraftrio.clients.serialization import json_deserializer as json_deserializer
    from kraftrio.clients.serialization import json_serializer as json_serializer
    from kraftrio.clients.serialization import msgpack_deserializer as msgpack_deserializer
    from kraftrio.clients.serialization import msgpack_serializer as msgpack_serializer
    from kraftrio.clients.serialization import string_deserializer as string_deserializer
    from kraftrio.clients.serialization import string_serializer as string_serializer
    from kraftrio.clients.share.acknowledgements import AcknowledgeType as AcknowledgeType
    from kraftrio.clients.share.config import ShareConsumerConfig as ShareConsumerConfig
    from kraftrio.clients.share.consumer import ShareConsumer as ShareConsumer
    from kraftrio.clients.share.records import ShareBatch as ShareBatch
    from kraftrio.clients.share.records import ShareRecord as ShareRecord
    from kraftrio.clients.share.records import ShareRecords as ShareRecords
    from kraftrio.clients.spark.log_source import KraftrioLogSource as KraftrioLogSource
    from kraftrio.clients.spark.source import KraftrioSource as KraftrioSource
    from kraftrio.wire.primitives import TopicPartition as TopicPartition
    from kraftrio.wire.records.batch import TimestampType as TimestampType

__all__ = [
    "AbortTransactionSpec",
    "AcknowledgeType",
    "Acl",
    "AclFilter",
    "Admin",
    "AdminConfig",
    "AlterConfigOp",
    "BrokerAddress",
    "ClusterDescription",
    "ClusterStatistics",
    "CommittedOffset",
    "CommittedRecords",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "Consumer",
    "ConsumerBatch",
    "ConsumerConfig",
    "ConsumerRecord",
    "ConsumerRecords",
    "ConsumerStatistics",
    "CreatedTopic",
    "DelegationToken",
    "Delivery",
    "ElectionType",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "KafkaClientError",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "OpType",
    "PartitionLag",
    "PartitionMetadata",
    "PartitionReassignment",
    "Producer",
    "ProducerConfig",
    "ProducerState",
    "ProducerStatistics",
    "QuorumInfo",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaFilter",
    "RebalanceListener",
    "RecordMetadata",
    "ReplicaInfo",
    "Results",
    "RetriableError",
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramPassword",
    "ShareBatch",
    "ShareConsumer",
    "ShareConsumerConfig",
    "ShareConsumerStatistics",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "ShareRecord",
    "ShareRecords",
    "StreamsGroupDescription",
    "StreamsMemberDescription",
    "StreamsSubtopology",
    "StreamsTasks",
    "SubscriptionPattern",
    "TimestampType",
    "TopicListing",
    "TopicMetadata",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionListing",
    "__version__",
    "json_deserializer",
    "json_serializer",
    "msgpack_deserializer",
    "msgpack_serializer",
    "string_deserializer",
    "string_serializer",
]

_MODULES: dict[str, tuple[str, ...]] = {
    "clients.admin.admin": ("Admin",),
    "clients.admin.groups": ("CommittedOffset",),
    "clients.admin.security.acls": (
        "Acl",
        "AclFilter",
    ),
    "clients.admin.security.client_quotas": (
        "QuotaEntity",
        "QuotaFilter",
    ),
    "clients.admin.security.delegation_tokens": ("DelegationToken",),
    "clients.admin.security.scram_users": (
        "ScramCredentialInfo",
        "ScramDeletion",
        "ScramPassword",
    ),
    "clients.admin.types": (
        "AbortTransactionSpec",
        "AlterConfigOp",
        "ClusterDescription",
        "ConfigEntry",
        "ConfigResource",
        "ConfigResourceType",
        "ConfigSource",
        "CreatedTopic",
        "ElectionType",
        "FencedProducer",
        "GroupDescription",
        "GroupListing",
        "ListedOffset",
        "LogDirDescription",
        "MemberDescription",
        "NewTopic",
        "OffsetSpec",
        "OpType",
        "PartitionLag",
        "PartitionReassignment",
        "ProducerState",
        "QuorumInfo",
        "QuorumReplica",
        "ReplicaInfo",
        "Results",
        "ShareGroupDescription",
        "ShareMemberDescription",
        "SharePartitionOffset",
        "StreamsGroupDescription",
        "StreamsMemberDescription",
        "StreamsSubtopology",
        "StreamsTasks",
        "TopicListing",
        "TransactionDescription",
        "TransactionListing",
    ),
    "clients.config": (
        "AdminConfig",
        "ProducerConfig",
    ),
    "clients.consumer.committed": ("CommittedRecords",),
    "clients.consumer.config": ("ConsumerConfig",),
    "clients.consumer.consumer": ("Consumer",),
    "clients.consumer.listener": ("RebalanceListener",),
    "clients.consumer.offsets": ("OffsetAndTimestamp",),
    "clients.consumer.records": (
        "ConsumerBatch",
        "ConsumerRecord",
        "ConsumerRecords",
    ),
    "clients.consumer.subscription": ("SubscriptionPattern",),
    "clients.diagnostics.statistics": (
        "ClusterStatistics",
        "ConsumerStatistics",
        "ProducerStatistics",
        "ShareConsumerStatistics",
    ),
    "clients.errors.kinds": (
        "KafkaClientError",
        "RetriableError",
    ),
    "clients.group_offsets": (
        "GroupMetadata",
        "OffsetAndMetadata",
    ),
    "clients.metadata": (
        "BrokerAddress",
        "PartitionMetadata",
        "TopicMetadata",
    ),
    "clients.producer.batch": (
        "Delivery",
        "RecordMetadata",
    ),
    "clients.producer.producer": ("Producer",),
    "clients.producer.transactions.transaction": ("Transaction",),
    "clients.serialization": (
        "json_deserializer",
        "json_serializer",
        "msgpack_deserializer",
        "msgpack_serializer",
        "string_deserializer",
        "string_serializer",
    ),
    "clients.share.acknowledgements": ("AcknowledgeType",),
    "clients.share.config": ("ShareConsumerConfig",),
    "clients.share.consumer": ("ShareConsumer",),
    "clients.share.records": (
        "ShareBatch",
        "ShareRecord",
        "ShareRecords",
    ),
    "clients.spark.log_source": ("KraftrioLogSource",),
    "clients.spark.source": ("KraftrioSource",),
    "wire.primitives": ("TopicPartition",),
    "wire.records.batch": ("TimestampType",),
}
_HOMES = {name: f"kraftrio.{module}" for module, names in _MODULES.items() for name in names}
_OF_SPARK = {"pyspark", "pyarrow"}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("kraftrio.errors")
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
