"""The admin client: `async with Admin("localhost:9092") as admin`.

Owns the client's life and what programs call: how long a call may take, and whether it raises. What
is sent and how answers are read is in `admin/topics`, `configs`, `groups`, `log_dirs` and
`cluster`, and how requests find their broker in `admin/calls`. Whole parts are attributes:
`transactions`, what only `share_groups` and `streams_groups` have, and what is in
`admin/security/`. Calls about several items return `Results` and raise the first item's error,
unless `raise_errors` is False. Calls may run side by side. No method here decides anything.

Names and defaults of the settings are those of the Java client in snake_case. Kafka documentation,
"Admin API".
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, Unpack

from kraftrio.clients.admin import cluster as cluster_calls
from kraftrio.clients.admin import configs as config_calls
from kraftrio.clients.admin import groups as group_calls
from kraftrio.clients.admin import lag as lag_calls
from kraftrio.clients.admin import log_dirs as log_dir_calls
from kraftrio.clients.admin import topics as topic_calls
from kraftrio.clients.admin.calls import AdminCalls, Deadline, finish
from kraftrio.clients.admin.configs import ConfigChanges
from kraftrio.clients.admin.groups import CommittedOffset
from kraftrio.clients.admin.security.acls import AclAdmin
from kraftrio.clients.admin.security.client_quotas import ClientQuotaAdmin
from kraftrio.clients.admin.security.delegation_tokens import DelegationTokenAdmin
from kraftrio.clients.admin.security.scram_users import ScramUserAdmin
from kraftrio.clients.admin.share_groups import ShareGroupAdmin
from kraftrio.clients.admin.streams_groups import StreamsGroupAdmin
from kraftrio.clients.admin.transactions import TransactionAdmin
from kraftrio.clients.admin.types import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    ElectionType,
    GroupDescription,
    GroupListing,
    ListedOffset,
    LogDirDescription,
    NewTopic,
    OffsetSpec,
    PartitionLag,
    PartitionReassignment,
    QuorumInfo,
    Results,
    TopicListing,
)
from kraftrio.clients.arguments.several import Partitions, Texts
from kraftrio.clients.arguments.times import Duration, PastMoment
from kraftrio.clients.cluster import open_cluster
from kraftrio.clients.config import AdminConfig, AdminSettings, describe_client, make_config
from kraftrio.clients.diagnostics.open_clients import noted_as_open
from kraftrio.clients.diagnostics.statistics import ClusterStatistics
from kraftrio.clients.errors import ClosedError
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.net.transport import Network
from kraftrio.wire.primitives import TopicPartition

_TOPIC_IDLE_MS = 300_000


class Admin:
    """Administers a cluster; to be entered with `async with`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such.
        network: where sockets come from, instead of the system's.
        settings: see `AdminConfig`.

    Attributes:
        share_groups: what only share groups have.
        streams_groups: what only streams groups have.
        transactions: which there are, and ending them.
        acls: who may do what.
        scram_users: who logs in by SCRAM.
        quotas: how much users, clients and addresses may use.
        delegation_tokens: short-lived logins that users hand on.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        network: Network | None = None,
        rng: random.Random | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        self.config = make_config(AdminConfig, bootstrap_servers, settings)
        self._network = network
        self._rng = rng
        self._stack = AsyncExitStack()
        self._calls: AdminCalls | None = None
        self.share_groups = ShareGroupAdmin(self._begin)
        self.streams_groups = StreamsGroupAdmin(self._begin)
        self.transactions = TransactionAdmin(self._begin)
        self.acls = AclAdmin(self._begin)
        self.scram_users = ScramUserAdmin(self._begin)
        self.quotas = ClientQuotaAdmin(self._begin)
        self.delegation_tokens = DelegationTokenAdmin(self._begin)

    def __repr__(self) -> str:
        return describe_client(self, self.config, is_open=self._calls is not None)

    async def __aenter__(self) -> Self:
        cluster = await self._stack.enter_async_context(
            open_cluster(
                config=self.config,
                network=self._network,
                rng=self._rng,
                topic_idle_ms=_TOPIC_IDLE_MS,
            )
        )
        self._stack.enter_context(noted_as_open(self))
        self._calls = AdminCalls(cluster, self.config)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._calls = None
        await self._stack.__aexit__(kind, error, traceback)

    def _begin(self, timeout_ms: Duration | None) -> tuple[AdminCalls, Deadline]:
        if self._calls is None:
            raise ClosedError("the admin client is not open")
        return self._calls, Deadline(self.config, timeout_ms)

    def statistics(self) -> ClusterStatistics:
        """Return figures of this moment.

        Raises:
            ClosedError: the admin client is not open.
        """
        if self._calls is None:
            raise ClosedError("the admin client is not open")
        return self._calls.cluster.statistics()

    # -- topics -----------------------------------------------------------------------------------

    async def create_topics(
        self,
        topics: NewTopic | Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, CreatedTopic]:
        """Create topics.

        Raises:
            TopicExistsError, InvalidTopicError, ...: for a topic, if `raise_errors`.
            TimedOutError, NetworkError: the controller did not answer.
        """
        results = await topic_calls.create_topics(
            *self._begin(timeout_ms), topics, validate_only=validate_only
        )
        return finish(results, raise_errors)

    async def delete_topics(
        self,
        topics: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Delete topics by name.

        Raises:
            UnknownTopicOrPartitionError, ...: for a topic, if `raise_errors`.
            TimedOutError, NetworkError: the controller did not answer.
        """
        results = await topic_calls.delete_topics(*self._begin(timeout_ms), topics)
        return finish(results, raise_errors)

    async def create_partitions(
        self,
        new_totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Raise topics' numbers of partitions to these totals.

        Raises:
            InvalidPartitionsError, ...: for a topic, if `raise_errors`.
            TimedOutError, NetworkError: the controller did not answer.
        """
        results = await topic_calls.create_partitions(
            *self._begin(timeout_ms), new_totals, validate_only=validate_only
        )
        return finish(results, raise_errors)

    async def list_topics(
        self, *, list_internal: bool = False, timeout_ms: Duration | None = None
    ) -> dict[str, TopicListing]:
        """Return the topics there are, by name."""
        return await topic_calls.list_topics(*self._begin(timeout_ms), list_internal=list_internal)

    async def describe_topics(
        self,
        topics: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, TopicMetadata]:
        """Return topics' partitions with their leaders, replicas and in-sync replicas.

        Raises:
            UnknownTopicOrPartitionError, ...: for a topic, if `raise_errors`.
            TimedOutError, NetworkError: no broker answered.
        """
        results = await topic_calls.describe_topics(*self._begin(timeout_ms), topics)
        return finish(results, raise_errors)

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, OffsetSpec | PastMoment],
        *,
        read_committed: bool = False,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, ListedOffset]:
        """Look offsets up.

        Args:
            wanted: an `OffsetSpec`, or a timestamp in milliseconds: the first record not older.
            read_committed: the latest offset is then that of the last decided transaction.

        Raises:
            UnknownTopicOrPartitionError, ...: for a partition, if `raise_errors`.
        """
        results = await topic_calls.list_offsets(
            *self._begin(timeout_ms), wanted, read_committed=read_committed
        )
        return finish(results, raise_errors)

    async def delete_records(
        self,
        before_offsets: Mapping[TopicPartition, int],
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, int]:
        """Delete the records before these offsets (-1: all); return the new start offsets.

        Raises:
            OffsetOutOfRangeError, ...: for a partition, if `raise_errors`.
        """
        results = await topic_calls.delete_records(*self._begin(timeout_ms), before_offsets)
        return finish(results, raise_errors)

    # -- settings ---------------------------------------------------------------------------------

    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        include_documentation: bool = False,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of topics, brokers, groups, by name.

        Raises:
            UnknownTopicOrPartitionError, ...: for a resource, if `raise_errors`.
            TimedOutError, NetworkError: a broker did not answer.
        """
        results = await config_calls.describe_configs(
            *self._begin(timeout_ms),
            resources,
            include_documentation=include_documentation,
        )
        return finish(results, raise_errors)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, ConfigChanges],
        *,
        validate_only: bool = False,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, None]:
        """Change single settings; those not named stay as they are.

        Raises:
            InvalidConfigurationError, ...: for a resource, if `raise_errors`.
            TimedOutError, NetworkError: a broker did not answer.
        """
        results = await config_calls.incremental_alter_configs(
            *self._begin(timeout_ms), changes, validate_only=validate_only
        )
        return finish(results, raise_errors)

    # -- groups -----------------------------------------------------------------------------------

    async def list_groups(
        self,
        *,
        states: Texts = (),
        types: Texts = (),
        protocol_types: Texts = (),
        timeout_ms: Duration | None = None,
    ) -> list[GroupListing]:
        """Return the groups of all brokers and of all kinds; empty filters let everything through.

        Args:
            states: such as "Stable" and "Empty".
            types: "classic", "consumer", "share" and "streams".
            protocol_types: such as "consumer" and "share"; of classic groups what members say.

        Raises:
            TimedOutError, NetworkError: not every broker answered.
        """
        return await group_calls.list_groups(
            *self._begin(timeout_ms), states=states, types=types, protocol_types=protocol_types
        )

    async def describe_groups(
        self,
        group_ids: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, GroupDescription]:
        """Return groups' states and members, of the classic and the consumer protocol.

        Share groups and streams groups are described by `share_groups` and `streams_groups`.

        Raises:
            GroupIdNotFoundError, ...: for a group, if `raise_errors`.
        """
        results = await group_calls.describe_groups(*self._begin(timeout_ms), group_ids)
        return finish(results, raise_errors)

    async def delete_groups(
        self,
        group_ids: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Delete groups of any kind that have no members, with their committed offsets or state.

        Raises:
            GroupNotEmptyError, GroupIdNotFoundError, ...: for a group, if `raise_errors`.
        """
        results = await group_calls.delete_groups(*self._begin(timeout_ms), group_ids)
        return finish(results, raise_errors)

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Partitions | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, CommittedOffset | None]:
        """Return what a group has committed; None for a partition without.

        Args:
            partitions: None: all that have something.
            require_stable: wait for open transactions that commit offsets.

        Raises:
            GroupIdNotFoundError, CoordinatorNotAvailableError, ...: the coordinator refuses.
        """
        results = await group_calls.list_group_offsets(
            *self._begin(timeout_ms),
            group_id,
            partitions,
            require_stable=require_stable,
        )
        return finish(results, raise_errors)

    async def consumer_group_lag(
        self, group_id: str, *, timeout_ms: Duration | None = None
    ) -> dict[TopicPartition, PartitionLag]:
        """Return how far a group is behind, for each partition that it has committed of, or reads.

        Raises:
            GroupIdNotFoundError: there is no such group of the classic or the consumer protocol.
            TimedOutError, KafkaClientError: it could not be found out.
        """
        return await lag_calls.consumer_group_lag(*self._begin(timeout_ms), group_id)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Commit offsets for a group of any kind but a share group, that has no members.

        Raises:
            UnknownMemberIdError: it has members; or ...: for a partition, if `raise_errors`.
        """
        results = await group_calls.alter_group_offsets(*self._begin(timeout_ms), group_id, offsets)
        return finish(results, raise_errors)

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Partitions,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Forget what a group has committed for partitions that no member is subscribed to.

        Raises:
            GroupIdNotFoundError, ...: of the group; or for a partition, if `raise_errors`.
        """
        results = await group_calls.delete_group_offsets(
            *self._begin(timeout_ms), group_id, partitions
        )
        return finish(results, raise_errors)

    async def remove_members(
        self,
        group_id: str,
        group_instance_ids: Texts | None = None,
        *,
        reason: str = "",
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Take members out of a group of the classic or the consumer protocol.

        Args:
            group_instance_ids: of static members; None: all members, the others by their ids.

        Raises:
            UnknownMemberIdError, ...: for a member, if `raise_errors`.
            GroupIdNotFoundError, ...: of the group.
        """
        results = await group_calls.remove_members(
            *self._begin(timeout_ms), group_id, group_instance_ids, reason
        )
        return finish(results, raise_errors)

    # -- the cluster ------------------------------------------------------------------------------

    async def describe_cluster(self, *, timeout_ms: Duration | None = None) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers.

        Raises:
            TimedOutError, NetworkError: no broker answered.
        """
        return await cluster_calls.describe_cluster(*self._begin(timeout_ms))

    async def describe_log_dirs(
        self,
        brokers: int | Iterable[int],
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[int, dict[str, LogDirDescription]]:
        """Return brokers' log directories by path: sizes of the replicas, room on the disks.

        Raises:
            TimedOutError, ClusterAuthorizationError, ...: for a broker, if `raise_errors`.
        """
        results = await log_dir_calls.describe_log_dirs(*self._begin(timeout_ms), brokers)
        return finish(results, raise_errors)

    async def describe_metadata_quorum(self, *, timeout_ms: Duration | None = None) -> QuorumInfo:
        """Return who leads the metadata quorum and how far its replicas are.

        Raises:
            TimedOutError, NetworkError: no broker answered.
            KafkaClientError: the quorum has no leader that answers.
        """
        return await cluster_calls.describe_metadata_quorum(*self._begin(timeout_ms))

    async def unregister_broker(
        self, broker_id: int, *, timeout_ms: Duration | None = None
    ) -> None:
        """Have the cluster forget a broker that is gone for good.

        Its replicas stay assigned to it until they are reassigned. A broker that runs, or starts
        again, may register again.

        Raises:
            BrokerIdNotRegisteredError: there is no such broker.
            TimedOutError, NetworkError: the controller did not answer.
        """
        await cluster_calls.unregister_broker(*self._begin(timeout_ms), broker_id)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Partitions | None = None,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Have leaders elected; None: for all partitions, with results for those that needed one.

        Raises:
            KafkaClientError: for a partition, if `raise_errors`; ELECTION_NOT_NEEDED is one.
        """
        results = await cluster_calls.elect_leaders(
            *self._begin(timeout_ms), election_type, partitions
        )
        return finish(results, raise_errors)

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Move partitions to other brokers, or with None stop moving them.

        Raises:
            KafkaClientError: for a partition, if `raise_errors`.
        """
        results = await cluster_calls.alter_partition_reassignments(
            *self._begin(timeout_ms), reassignments
        )
        return finish(results, raise_errors)

    async def list_partition_reassignments(
        self,
        partitions: Partitions | None = None,
        *,
        timeout_ms: Duration | None = None,
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments that are going on, of all partitions or of some."""
        return await cluster_calls.list_partition_reassignments(
            *self._begin(timeout_ms), partitions
        )
