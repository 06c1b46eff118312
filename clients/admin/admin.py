"""The admin client: `async with Admin("localhost:9092") as admin`.

Owns the client's life; its calls are in `admin/topics`, `admin/groups` and `admin/cluster`, and how
they find their broker in `admin/calls`. Calls about several items return `Results` and raise the
first item's error, unless told `raise_errors=False`. Calls may run side by side.

Names and defaults of the settings are those of the Java client in snake_case. Kafka documentation,
"Admin API".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, Unpack

from kraftrio.clients.admin.cluster import ClusterCalls
from kraftrio.clients.admin.groups import CommittedOffset, GroupCalls
from kraftrio.clients.admin.topics import TopicCalls
from kraftrio.clients.admin.types import (
    AlterConfigOp,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    CreatedTopic,
    ElectionType,
    GroupDescription,
    GroupListing,
    ListedOffset,
    MemberDescription,
    NewTopic,
    OffsetSpec,
    OpType,
    PartitionReassignment,
    QuorumInfo,
    QuorumReplica,
    Results,
    TopicListing,
)
from kraftrio.clients.cluster import Cluster, open_cluster
from kraftrio.clients.config import AdminConfig, AdminSettings, make_config
from kraftrio.net.transport import Network

__all__ = [
    "Admin",
    "AlterConfigOp",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "CreatedTopic",
    "ElectionType",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "OpType",
    "PartitionReassignment",
    "QuorumInfo",
    "QuorumReplica",
    "Results",
    "TopicListing",
]

_TOPIC_IDLE_MS = 300_000


class Admin(TopicCalls, GroupCalls, ClusterCalls):
    """Administers a cluster; to be entered with `async with`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such.
        network: where sockets come from, instead of the system's.
        settings: see `AdminConfig`.

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
        self._cluster: Cluster | None = None

    async def __aenter__(self) -> Self:
        self._cluster = await self._stack.enter_async_context(
            open_cluster(
                config=self.config,
                network=self._network,
                rng=self._rng,
                topic_idle_ms=_TOPIC_IDLE_MS,
            )
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cluster = None
        await self._stack.__aexit__(kind, error, traceback)
