"""What administrators do meanwhile: topics, configurations, reassignments, elections.

Owns: `Administrator`. The durable topic is made here, and may be moved between brokers and have its
leaders elected; topics that come and go are this client's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    OpData,
)
from kraftrio.wire.messages.quorum import FeatureUpdateKey, UpdateFeaturesRequest
from tests.sim.admin_model import AdminModel
from tests.sim.client import SimClient, Unavailable
from tests.sim.options import Options

_TIMEOUT_MS = 5_000
_SAFE_DOWNGRADE = 2
# What an administrator may be answered in a cluster that breaks and mends.
_PASSING = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
)


_RESULTS = {
    CreateTopicsRequest: "topics",
    DeleteTopicsRequest: "responses",
    CreatePartitionsRequest: "results",
}


class Administrator:
    """See the module."""

    def __init__(self, client: SimClient, options: Options) -> None:
        self._client = client
        self._options = options
        self.model = AdminModel()
        self._brokers = [i for i, roles in options.shape.roles().items() if "broker" in roles]

    async def create(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; ask until it is there."""
        wanted = {"min.insync.replicas": str(self._options.min_insync_replicas), **(configs or {})}
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=self._options.replication_factor,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in wanted.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        while True:
            try:
                response = await self._client.call_any(request, extra_s=_TIMEOUT_MS / 1000)
            except Unavailable as error:
                self._client.note(f"create {name} again: {error}")
            else:
                code = self._check("create", response.topics[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
            await self._client.pause()

    async def downgrade(self, feature: str, level: int) -> None:
        """Finalize a lower level of a feature; ask until it is done."""
        update = FeatureUpdateKey(
            feature=feature, max_version_level=level, upgrade_type=_SAFE_DOWNGRADE
        )
        request = UpdateFeaturesRequest(timeout_ms=_TIMEOUT_MS, feature_updates=[update])
        while True:
            try:
                response = await self._client.call_any(request, extra_s=_TIMEOUT_MS / 1000)
            except Unavailable as error:
                self._client.note(f"{feature} again: {error}")
            else:
                if self._check(f"{feature} {level}", response.error_code) is ErrorCode.NONE:
                    return
            await self._client.pause()

    async def limit_clients(self, quotas: Mapping[str, float]) -> None:
        """Give every client id these quotas; ask until it is done."""
        entity = [AlterClientQuotasEntityData(entity_type="client-id", entity_name=None)]
        ops = [OpData(key=key, value=value) for key, value in quotas.items()]
        request = AlterClientQuotasRequest(
            entries=[AlterClientQuotasEntryData(entity=entity, ops=ops)]
        )
        while True:
            try:
                response = await self._client.call_any(request, extra_s=_TIMEOUT_MS / 1000)
            except Unavailable as error:
                self._client.note(f"quotas again: {error}")
            else:
                if self._check("quotas", response.entries[0].error_code) is ErrorCode.NONE:
                    return
            await self._client.pause()

    def _check(self, what: str, code: int) -> ErrorCode:
        found = ErrorCode(code)
        self._client.note(f"{what}: {found.name}")
        if found not in _PASSING and not found.retriable:
            raise SimulationFailure(f"{what} was answered {found.name}")
        return found

    async def run(self) -> None:
        """Change this and that until cancelled."""
        rng = self._client.rng
        actions = (
            self._create_some,
            self._delete_some,
            self._grow_some,
            self._configure,
            self._reassign,
            self._elect,
        )
        while True:
            await trio.sleep(rng.expovariate(1 / self._options.admin_gap_s))
            try:
                await rng.choice(actions)()
            except Unavailable as error:
                self._client.note(f"administration: {error}")

    async def _change(self, what: str, name: str, partitions: int, request: Any) -> None:
        """Let a topic have so many partitions, 0 if it is to go, and tell the model."""
        code = None
        try:
            response = await self._client.call_any(request, extra_s=_TIMEOUT_MS / 1000)
            results = getattr(response, _RESULTS[type(request)])
            code = self._check(f"{what} {name}", results[0].error_code)
        finally:
            self.model.on_answer(name, code, partitions)

    async def _create_some(self) -> None:
        name = self.model.name(self._client.rng.randrange(4))
        count = self._client.rng.choice((1, 2, 5))
        topic = CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=self._client.rng.randint(1, self._options.replication_factor),
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        await self._change("create", name, count, request)

    async def _delete_some(self) -> None:
        name = self.model.name(self._client.rng.randrange(4))
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        await self._change("delete", name, 0, request)

    async def _grow_some(self) -> None:
        name = self.model.name(self._client.rng.randrange(4))
        topic = CreatePartitionsTopic(name=name, count=self._client.rng.randint(2, 8))
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        await self._change("grow", name, topic.count, request)

    async def _configure(self) -> None:
        value = str(self._client.rng.choice((1_048_576, 2_097_152)))
        resource = IncrementalAlterConfigsResource(
            resource_type=2,
            resource_name="durable",
            configs=[
                IncrementalAlterableConfig(name="segment.bytes", config_operation=0, value=value)
            ],
        )
        code = None
        try:
            response = await self._client.call_any(
                IncrementalAlterConfigsRequest(resources=[resource]), extra_s=_TIMEOUT_MS / 1000
            )
            code = self._check("configure", response.responses[0].error_code)
        finally:
            self.model.on_config("durable", "segment.bytes", value, code)

    async def _reassign(self) -> None:
        rng = self._client.rng
        partition = rng.randrange(self._options.partitions)
        replicas = rng.sample(self._brokers, self._options.replication_factor)
        topic = ReassignableTopic(
            name="durable",
            partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)],
        )
        request = AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=[topic])
        response = await self._client.call_any(request, extra_s=_TIMEOUT_MS / 1000)
        self._check("reassign", response.error_code)
        if response.responses:
            answer = response.responses[0].partitions[0]
            self._check(f"reassign {partition} to {replicas}", answer.error_code)

    async def _elect(self) -> None:
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=None, timeout_ms=_TIMEOUT_MS
        )
        response = await self._client.call_any(request, extra_s=_TIMEOUT_MS / 1000)
        self._check("elect", response.error_code)
