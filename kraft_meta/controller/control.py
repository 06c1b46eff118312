"""What the parts of the controller share: its configuration, its result, what a decision sees.

Owns: `ControllerConfig`, `DecisionContext`, `ControllerResult`. Rules: a handler is a function of
the uncommitted image and a request; it returns records and the response that is sent once they are
committed, and changes nothing itself (the heartbeat times of cluster_control.py are the one soft
state). A refusal of one item is an `ErrorCode` in the response, raised inside as `KafkaError`.

Called by: every module of this room.
Tested by: tests/unit/kraft_meta/controller/, with every decision.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kraftrio.base.secret import Secret
from kraftrio.kraft_meta.controller.mutation_quota import ANY_MUTATIONS, Mutations
from kraftrio.kraft_meta.controller.partition_index import PartitionIndex
from kraftrio.kraft_meta.metadata.image import (
    BROKER,
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TOPIC,
    TRANSACTION_VERSION,
    MetadataImage,
)
from kraftrio.kraft_meta.metadata.records import MetadataRecord
from kraftrio.kraft_meta.metadata.security_records import UserScramCredentialRecord
from kraftrio.kraft_meta.raft.ports import ConfigValidator, TopicConfigs
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.quorum import Feature

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_VERSION: Final = "metadata.version"
UNCLEAN_ELECTION_KEY: Final = "unclean.leader.election.enable"

# What is served of Kafka 4.3's features (metadata.version 30 is 4.3-IV0); what a new cluster starts
# with is the greatest of each range. A feature named here turns protocols on in clients:
# group.version 1 is the consumer group protocol, share.version 1 are share groups,
# streams.version 1 streams groups, transaction.version 2 is transactions with an epoch each,
# without AddPartitionsToTxn. kraft.version 0 is a quorum whose voters do not change.
DEFAULT_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    "kraft.version": (0, 0),
    STREAMS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The settings `delegation.token.*`."""

    secret_key: Secret | None = None
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000
    check_interval_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The controller's own settings, by Kafka's property names.

    `cluster_id` is the id that a new cluster gets, "" for a random one; `first_credentials` are
    those of its first users.
    """

    cluster_id: str
    node_id: int
    num_partitions: int = 1
    default_replication_factor: int = 1
    # The controllers, whose configurations may be changed though they are not brokers.
    controller_ids: tuple[int, ...] = ()
    delete_topic_enable: bool = True
    broker_session_timeout_ms: int = 9000
    unclean_leader_election_enable: bool = False
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    max_partitions_per_request: int = 10_000
    producer_id_block_size: int = 1000
    first_credentials: tuple[UserScramCredentialRecord, ...] = ()
    tokens: TokenSettings = TokenSettings()
    supported_features: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: DEFAULT_FEATURES
    )


def registered_features(
    features: Mapping[str, tuple[int, int]] = DEFAULT_FEATURES,
) -> list[Feature]:
    """Return the features that a node supports, as a broker registers with them."""
    return [
        Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in sorted(features.items())
    ]


class ControllerResult(NamedTuple):
    """Records to commit, and the response to send when they are."""

    records: list[MetadataRecord]
    response: Any


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """Everything that a handler may look at besides the request."""

    config: ControllerConfig
    validator: ConfigValidator
    topic_configs: TopicConfigs
    rng: random.Random
    new_uuid: Callable[[], bytes]
    image: MetadataImage
    index: PartitionIndex
    api_version: int
    next_offset: int
    now_ms: float
    mutations: Mutations = ANY_MUTATIONS


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> None:
    """Raise unless that incarnation of the broker is the registered one."""
    broker = image.broker(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker with id {broker_id} is registered."
        )
    if broker.broker_epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.broker_epoch}, but got {broker_epoch}.",
        )


def is_unclean_election_enabled(config: ControllerConfig, image: MetadataImage, topic: str) -> bool:
    """Return whether a topic may lose records rather than stay without a leader."""
    value = image.config(TOPIC, topic).get(UNCLEAN_ELECTION_KEY)
    if value is None:
        value = image.config(BROKER, "").get(UNCLEAN_ELECTION_KEY)
    if value is None:
        return config.unclean_leader_election_enable
    return value.strip().lower() == "true"
