"""A broker's admin side for tests: the real controller core and handlers, without sockets or disk.

Requests that handlers forward are decided by the controller at once, or when `settle` is called
after `hold`; the image is published as the metadata publisher does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.admin import AdminHandlers
from kraftrio.broker.api.cluster import ClusterHandlers
from kraftrio.broker.api.configs import ConfigHandlers
from kraftrio.broker.api.metadata import MetadataHandlers
from kraftrio.broker.api.topic_partitions import TopicPartitionHandlers
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.config.validator import NodeConfigValidator
from kraftrio.broker.metadata.auto_topics import AutoTopicCreator
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.kraft_meta.controller.control import ControllerConfig
from kraftrio.kraft_meta.controller.controller import Controller
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.image import Endpoint, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import MetadataRecord, RegisterBrokerRecord
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kraftrio.wire.messages.quorum import (
    DescribeQuorumNode,
    DescribeQuorumReplicaState,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)

CLUSTER_ID = "clusterclusterclusterA"


def context(api_version: int, listener: str = "PLAINTEXT") -> RequestContext:
    """A request's circumstances in some version."""
    return RequestContext(0, api_version, 1, "client", ClientInfo("127.0.0.1", 5, listener))


@dataclass
class ManualTimers:
    """Scheduled calls that a test makes itself."""

    calls: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> _ManualTimer:
        call = (delay_ms, callback)
        self.calls.append(call)
        return _ManualTimer(self, call)

    def fire(self) -> None:
        """Let all the time pass."""
        calls, self.calls = self.calls, []
        for _delay_ms, callback in calls:
            callback()


@dataclass
class _ManualTimer:
    timers: ManualTimers
    call: tuple[float, Callable[[], None]]

    def cancel(self) -> None:
        if self.call in self.timers.calls:
            self.timers.calls.remove(self.call)


@dataclass
class FixedLoggers:
    """Loggers with levels in a dictionary."""

    now: dict[str, str] = field(default_factory=lambda: {"root": "INFO", "kraftrio.raft": "WARN"})

    def levels(self) -> dict[str, str]:
        return dict(self.now)

    def set_level(self, name: str, level: str | None) -> None:
        self.now[name] = level if level is not None else self.now["root"]


class ClusterContext:
    """One node with brokers registered in its image.

    Args:
        brokers: by id, whether it is alive; each listens as PLAINTEXT on host b<id>:9092.
    """

    def __init__(
        self, settings: dict[str, str] | None = None, brokers: dict[int, bool] | None = None
    ) -> None:
        self.config = BrokerConfig.load(None, settings or {}, {}, host_name=lambda: "h")
        self.metadata = MetadataCache()
        self.warnings: list[str] = []
        self.dynamic = DynamicConfig(self.config, self.warnings.append)
        self.validator = NodeConfigValidator(self.dynamic)
        self.ids = (bytes([number]) * 16 for number in range(1, 256))
        self.controller = Controller(
            ControllerConfig(
                CLUSTER_ID,
                self.config.node_id,
                num_partitions=self.config.num_partitions,
                default_replication_factor=self.config.default_replication_factor,
            ),
            self.validator,
            self.validator,
            random.Random(1),
            lambda: next(self.ids),
            lambda: 1_700_000_000_000,
        )
        self.submitted: list[Any] = []
        self.senders: list[RequestSender] = []
        self.held: list[Callable[[], None]] | None = None
        self.timers = ManualTimers()
        self.loggers = FixedLoggers()
        self.apply(self.controller.activate(MetadataImage(), 0))
        for broker_id, alive in (brokers or {1: True}).items():
            self.register(broker_id, fenced=not alive)
        self.auto_topics = AutoTopicCreator(self.dynamic, self.metadata, self)
        self.configs = ConfigHandlers(self.dynamic, self.metadata, self, self.loggers)
        self.topics = MetadataHandlers(self.config.node_id, self.metadata, self.auto_topics)
        self.topic_partitions = TopicPartitionHandlers(self.dynamic, self.metadata)
        self.cluster = ClusterHandlers(self.dynamic, self.metadata, self, self.describe_quorum)
        self.admin = AdminHandlers(self, self.timers)

    # --- what handlers ask for (ports) ---

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        """Let the controller decide, now or when the test says so."""
        return self._submit(None, request, api_version)

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        """The same, and note for whom."""
        self.senders.append(sender)
        return self._submit(sender, request, api_version)

    def _submit(
        self, sender: RequestSender | None, request: Any, api_version: int
    ) -> Deferred[Any]:
        self.submitted.append(request)
        answer: Deferred[Any] = Deferred()

        def decide() -> None:
            result = self.controller.handle(
                request,
                api_version=api_version,
                next_offset=self.metadata.image.offset + 1,
                now_ms=0,
                sender=sender,
            )
            self.apply(result.records)
            answer.complete(result.response)

        if self.held is None:
            decide()
        else:
            self.held.append(decide)
        return answer

    def describe_quorum(self, request: Any) -> Deferred[Any]:
        """Answer in the newest version, as the leader does."""
        partitions = [
            DescribeQuorumResponsePartitionData(
                error_message="fine",
                current_voters=[DescribeQuorumReplicaState(replica_directory_id=b"\x01" * 16)],
            )
            for _topic in request.topics
        ]
        return Deferred.completed(
            DescribeQuorumResponse(
                topics=[DescribeQuorumResponseTopicData(partitions=partitions)],
                nodes=[DescribeQuorumNode(node_id=1)],
            )
        )

    # --- what tests do ---

    def apply(self, records: list[MetadataRecord]) -> None:
        """Commit records and publish the image."""
        if not records:
            return
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        offset = self.metadata.image.offset + len(records)
        image = delta.apply(offset, 1)
        self.controller.replay(records, offset, 1)
        self.metadata.image = image
        self.dynamic.on_image(image)

    def register(
        self, broker_id: int, *, fenced: bool = False, listeners: tuple[str, ...] = ("PLAINTEXT",)
    ) -> None:
        """Put a broker into the image."""
        endpoints = tuple(Endpoint(name, f"b{broker_id}", 9092, 0) for name in listeners)
        self.apply(
            [
                RegisterBrokerRecord(
                    broker_id, bytes([broker_id]) * 16, 1, endpoints, rack="r", fenced=fenced
                )
            ]
        )

    def hold(self) -> None:
        """From now on the controller is slow."""
        self.held = []

    def settle(self) -> None:
        """The slow controller has decided everything."""
        held, self.held = self.held or [], None
        for decide in held:
            decide()

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, **configs: str
    ) -> bytes:
        """Create a topic; returns its id."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replicas,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        response = self.submit(request, api_version=7).value
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        self.submitted.clear()
        topic = self.metadata.topic(name)
        assert topic is not None
        return topic.topic_id


def create(name: str, timeout_ms: int = 100) -> CreateTopicsRequest:
    """A request for one topic with the defaults."""
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
