"""A share coordinator over logs in memory, with its handlers and a client of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import trio
import trio.testing

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.share.share_state import ShareStateHandlers
from kraftrio.broker.coordinator.share_coordinator import ask, share_coordinator
from kraftrio.broker.coordinator.share_state.shard import ShareStateShard
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.slices.sliced_work import do_at_once
from kraftrio.broker.share_state import SharePartitionKey, ShareStateBatch, ShareStateWrite
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import APIS
from kraftrio.wire.records.batch import iter_headers, iter_records
from kraftrio.wire.topic_names import SHARE_GROUP_STATE
from tests.unit.broker.coordinator.broker_stand_in import (
    ClusterMetadata,
    FakeReplicas,
    ManualTimers,
)

TOPIC, TOPIC_ID = "t", b"t" * 16
KEY = SharePartitionKey("g", TOPIC_ID, 0)
LOG = TopicPartition(SHARE_GROUP_STATE, 0)


@dataclass
class Properties:
    share_coordinator_snapshot_update_records_per_snapshot: int = 3
    share_coordinator_state_topic_prune_interval_ms: int = 60_000
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300_000
    share_coordinator_state_topic_num_partitions: int = 1
    share_coordinator_state_topic_compression_codec: int = 0
    share_coordinator_load_buffer_size: int = 1 << 20
    share_coordinator_write_timeout_ms: int = 5_000


class ShareStandIn:
    """The coordinator of a state topic with one partition, which it leads unless told not to.

    Attributes:
        pruned: the offsets below which records were deleted.
    """

    def __init__(self, *, lead: bool = True, metadata: ClusterMetadata | None = None) -> None:
        self.properties = Properties()
        self.timers = ManualTimers()
        self.replicas = FakeReplicas(self.timers)
        self.metadata = metadata or ClusterMetadata()
        self.metadata.add_topic(TOPIC, TOPIC_ID, 4)
        self.metadata.add_topic(SHARE_GROUP_STATE, b"s" * 16, 1)
        self.authorizer: Authorizer = ALLOW_ALL
        self.pruned: list[int] = []
        self.prune_error: KafkaError | None = None
        self.start()
        if lead:
            self.log = self.replicas.lead(0, SHARE_GROUP_STATE)
            self.coordinator.elect(0, 0)

    def start(self) -> None:
        """Make the coordinator."""
        self.coordinator = share_coordinator(
            self.properties,
            self._prune,
            replicas=self.replicas,
            timers=self.timers,
            clock=self.timers,
            metadata=self.metadata,
        )
        self.handlers = ShareStateHandlers(self.coordinator).table()

    def _prune(self, topic_partition: TopicPartition, offset: int) -> None:
        assert topic_partition == LOG
        if self.prune_error is not None:
            raise self.prune_error
        self.pruned.append(offset)

    async def restart(self, leader_epoch: int) -> None:
        """Have another coordinator lead the partition, and load it."""
        self.coordinator.resign(0)
        self.start()
        self.coordinator.elect(0, leader_epoch)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.coordinator.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    def records(self) -> list[tuple[bytes, bytes | None]]:
        """All records of the log."""
        return [
            (bytes(key), None if value is None else bytes(value))
            for batch in self.log.batches
            for header in iter_headers(batch)
            for _, _, key, value, _ in iter_records(batch, header)
            if key is not None
        ]

    # --- as the shard is asked ---

    def ask(self, operation: Callable[..., Any], key: SharePartitionKey = KEY) -> Any:
        """What the coordinator says, or the error's code; a Deferred while it says nothing."""
        asked = ask(self.coordinator, key, operation)
        if not asked.done:
            return asked
        return asked.value.code if isinstance(asked.value, KafkaError) else asked.value

    def initialize(
        self, state_epoch: int = 1, start_offset: int = 0, key: SharePartitionKey = KEY
    ) -> Any:
        return self.ask(
            lambda shard, now: shard.initialize(key, state_epoch, start_offset, now), key
        )

    def read(self, leader_epoch: int = 0, key: SharePartitionKey = KEY) -> Any:
        return self.ask(lambda shard, now: shard.read(key, leader_epoch, now), key)

    def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        delivery_complete_count: int = 0,
        key: SharePartitionKey = KEY,
    ) -> Any:
        write = ShareStateWrite(
            state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            tuple(ShareStateBatch(*batch) for batch in batches),
        )
        return self.ask(lambda shard, now: shard.write(key, write, now), key)

    def summary(self, key: SharePartitionKey = KEY) -> Any:
        return self.ask(lambda shard, _now: shard.summary(key), key)

    def delete(self, key: SharePartitionKey = KEY) -> Any:
        return self.ask(lambda shard, _now: shard.delete(key), key)

    def shard(self) -> ShareStateShard:
        (shard,) = self.coordinator.read_all(lambda shard: shard)
        return shard

    # --- as brokers ask ---

    def request(self, request: Any, version: int | None = None) -> Any:
        """Send a request over the wire's bytes; the response, or a Deferred of it."""
        api = next(one for one in APIS.values() if one.request is type(request))
        version = api.max_version if version is None else version
        received, _ = decode(type(request), version, encode(request, version))
        client = ClientInfo("127.0.0.1", 5555, "INTERNAL")
        context = RequestContext(int(api.key), version, 1, "broker-2", client, self.authorizer)
        response = self.handlers[api.key](received, context)
        if isinstance(response, GeneratorType):
            response = do_at_once(response).value

        def over_the_wire(response: Any) -> Any:
            return decode(type(response), version, encode(response, version))[0]

        if isinstance(response, Deferred) and not response.done:
            return response.map(over_the_wire)
        return over_the_wire(response.value if isinstance(response, Deferred) else response)
