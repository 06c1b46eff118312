"""The vocabulary of the controller's tests: `ControllerContext` commits everything at once."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from kraftrio.kraft_meta.controller.control import ControllerConfig, registered_features
from kraftrio.kraft_meta.controller.controller import Controller
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.controller.partition_index import PartitionIndex
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage, PartitionImage
from kraftrio.kraft_meta.metadata.records import MetadataRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftrio.wire.messages.quorum import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    BrokerState,
    Listener,
)

CLUSTER_ID = "cluster"
SESSION_MS = 9000
WALL_MS = 1_700_000_000_000  # when it is 0 by the other clock


class FakeConfigs:
    """Keeps the contracts of ConfigValidator and TopicConfigs with a handful of keys."""

    LISTS = ("cleanup.policy", "follower.replication.throttled.replicas")
    KEYS = (*LISTS, "retention.ms", "unclean.leader.election.enable", "log.retention.ms")

    def validate(self, resource_type: int, name: str, configs: Mapping[str, str]) -> None:
        for key, value in configs.items():
            if key not in self.KEYS:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
            if key == "retention.ms" and not value.removeprefix("-").isdigit():
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for {key}")

    def is_list(self, resource_type: int, key: str) -> bool:
        return key in self.LISTS

    def default_value(self, resource_type: int, key: str) -> str | None:
        return "delete" if key == "cleanup.policy" else None

    def describe_topic_configs(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(name=key, value=value, config_source=1)
            for key, value in overrides.items()
        ]


class ControllerContext:
    """An active controller whose proposals commit at once; `committed` follows as a broker's."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.config = ControllerConfig(cluster_id=CLUSTER_ID, node_id=1, **settings)
        self.now_ms = 0.0
        self.log: list[MetadataRecord] = []
        self.committed = MetadataImage()
        self._rng = random.Random(seed)
        self.controller = self._new_controller()
        self.commit(self.controller.activate(self.committed, self.now_ms))

    def _new_controller(self) -> Controller:
        configs = FakeConfigs()
        return Controller(
            self.config,
            configs,
            configs,
            self._rng,
            lambda: self._rng.randbytes(16),
            lambda: WALL_MS + int(self.now_ms),
        )

    def fail_over(self) -> None:
        """Another controller takes over: what is committed is all it has."""
        self.controller = self._new_controller()
        self.commit(self.controller.activate(self.committed, self.now_ms))

    @property
    def image(self) -> MetadataImage:
        return self.committed

    def commit(self, records: list[MetadataRecord]) -> None:
        """Take records that the controller decided on."""
        if not records:
            return
        last_offset = self.committed.offset + len(records)
        self.controller.replay(records, last_offset, 1)
        self.log += records
        delta = MetadataDelta(self.committed)
        for record in records:
            delta.replay(record)
        self.committed = delta.apply(last_offset, 1)
        assert self.committed == self.controller.image
        assert self.controller.index.is_same_as(PartitionIndex.of(self.committed))

    def send(self, request: Any, api_version: int = 99, sender: RequestSender | None = None) -> Any:
        """Let the controller decide, commit, and return the response."""
        result = self.controller.handle(
            request,
            api_version=api_version,
            next_offset=self.committed.offset + 1,
            now_ms=self.now_ms,
            sender=sender,
        )
        self.last_records = result.records
        self.commit(result.records)
        return result.response

    def sleep(self, duration_ms: float) -> None:
        """Let time pass, with every deadline on the way."""
        end_ms = self.now_ms + duration_ms
        while True:
            deadline_ms = self.controller.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.commit(self.controller.on_deadline(self.now_ms))
        self.now_ms = end_ms

    def stand_still(self, duration_ms: float) -> None:
        """Let time pass without a look at any deadline."""
        self.now_ms += duration_ms

    def run_deadlines(self) -> list[MetadataRecord]:
        """Decide whatever is due by now; return the records."""
        records: list[MetadataRecord] = []
        while (deadline_ms := self.controller.next_deadline_ms()) is not None:
            if deadline_ms > self.now_ms:
                break
            decided = self.controller.on_deadline(self.now_ms)
            self.commit(decided)
            records += decided
        return records

    # ---- brokers

    def try_register(
        self,
        broker_id: int,
        *,
        incarnation: int = 1,
        cluster_id: str = CLUSTER_ID,
        rack: str | None = None,
        log_dirs: list[bytes] | None = None,
    ) -> BrokerRegistrationResponse:
        response = self.send(
            BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=cluster_id,
                incarnation_id=bytes([broker_id, incarnation]) * 8,
                listeners=[Listener(name="PLAINTEXT", host="h", port=9092 + broker_id)],
                features=registered_features(self.config.supported_features),
                rack=rack,
                log_dirs=log_dirs or [],
            )
        )
        assert isinstance(response, BrokerRegistrationResponse)
        return response

    def register(self, broker_id: int, **options: Any) -> int:
        """Register a broker; return its epoch."""
        response = self.try_register(broker_id, **options)
        assert response.error_code == ErrorCode.NONE
        return response.broker_epoch

    def heartbeat(self, broker_id: int, **options: Any) -> BrokerHeartbeatResponse:
        broker = self.image.broker(broker_id)
        options.setdefault("broker_epoch", -1 if broker is None else broker.broker_epoch)
        options.setdefault("current_metadata_offset", self.image.offset)
        response = self.send(BrokerHeartbeatRequest(broker_id=broker_id, **options))
        assert isinstance(response, BrokerHeartbeatResponse)
        return response

    def start_brokers(self, *broker_ids: int, racks: str | None = None) -> None:
        """Register and unfence brokers; `racks` has one letter per broker."""
        for index, broker_id in enumerate(broker_ids):
            self.register(broker_id, rack=racks[index] if racks else None)
            assert not self.heartbeat(broker_id).is_fenced

    def fence(self, broker_id: int) -> None:
        assert self.heartbeat(broker_id, want_fence=True).is_fenced

    # ---- topics

    def create(self, name: str, *replicas: list[int], **configs: str) -> bytes:
        """Create a topic with these assignments (none: one partition, placed); return its id."""
        assignments = [list(r) for r in replicas]
        response = self.send(
            CreateTopicsRequest(topics=[topic(name, assignments=assignments, configs=configs)])
        )
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0]
        return response.topics[0].topic_id

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        partition = self.image.partition(name, index)
        assert partition is not None
        return partition

    def alter_isr(
        self, name: str, isr: list[int], index: int = 0, **changes: Any
    ) -> AlterPartitionResponsePartitionData:
        """Let the leader propose an ISR; `changes` replaces what it would say."""
        image = self.image.topic(name)
        assert image is not None
        partition = image.partitions[index]
        broker_id = changes.pop("broker_id", partition.leader)
        epochs = changes.pop("epochs", {})
        data = {
            "partition_index": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "new_isr_with_epochs": [
                BrokerState(broker_id=b, broker_epoch=epochs.get(b, -1)) for b in isr
            ],
            **changes,
        }
        response = self.send(
            AlterPartitionRequest(
                broker_id=broker_id,
                broker_epoch=self.image.brokers[broker_id].broker_epoch,
                topics=[
                    AlterPartitionRequestTopicData(
                        topic_id=image.topic_id,
                        partitions=[AlterPartitionRequestPartitionData(**data)],
                    )
                ],
            ),
            api_version=3,
        )
        assert isinstance(response, AlterPartitionResponse)
        assert response.error_code == ErrorCode.NONE
        return response.topics[0].partitions[0]


def topic(
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    *,
    assignments: list[list[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    """Make one topic of a CreateTopics request; configs in keyword form use _ for dots."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(assignments or [])
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in (configs or {}).items()
        ],
    )


def three_brokers(**settings: Any) -> ControllerContext:
    context = ControllerContext(**settings)
    context.start_brokers(1, 2, 3)
    return context
