"""Puts together what lets others see into a node: its figures, /metrics, the room on its disks.

Owns nothing but the wiring. Each role adds its figures (the quorum's here, the broker's in
`observe_broker`); the endpoint is loaded where `metrics.listener` is set, and nowhere else.

Called by: `node`, `broker_role`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import trio

from kraftrio.base.statistics import LabelledStatistics
from kraftrio.base.version import VERSION
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.coordinator.group_figures import GroupFigures
from kraftrio.broker.log.sync_times import SYNC_TIMES
from kraftrio.broker.metadata.cluster_figures import ClusterFigures
from kraftrio.broker.metrics.loop_watch import LoopWatch
from kraftrio.broker.metrics.telemetry.client_metrics import ClientMetrics, PushedFamily
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.watch.cluster_log import ClusterLog
from kraftrio.broker.node.watch.disk_space import DiskSpace
from kraftrio.broker.node.watch.service_manager import ServiceManager
from kraftrio.broker.node.watch.stall_watch import StallWatch
from kraftrio.broker.node.wiring.services import BrokerServices
from kraftrio.broker.replica.traffic import log_statistics
from kraftrio.broker.server.listening import bind_address
from kraftrio.broker.server.slow_requests import SlowRequests
from kraftrio.kraft_meta.metadata.image import CLIENT_METRICS
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.net.transport import ListeningSocket
from kraftrio.wire.primitives import TopicPartition

_REFRESH_S = 1.0  # how long a reader of metrics waits for other brokers' figures


class Observation:
    """See the module; one per node.

    Attributes:
        is_serving: whether `serves` was called.
        loop: how late the event loop is.
    """

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._cluster = ClusterFigures()
        self._space = DiskSpace(
            node.storage.log_manager.dirs, node.config.log_dirs_free_bytes_warning
        )
        self.loop = LoopWatch(node.environment.clock.ticks_ns)
        self.is_serving = False
        self._stopping = trio.Event()
        self._groups: GroupFigures | None = None
        self._slow_requests = SlowRequests(
            node.resources, lambda: node.dynamic.current.slow_request_ms
        )
        self._manager = ServiceManager(os.environ if node.environment.has_threads else {})
        self._add_figures()

    def serves(self) -> None:
        """The node has begun to serve clients, or brokers."""
        self.is_serving = True
        self._manager.notify("READY=1")

    def _add_figures(self) -> None:
        node, metrics = self._node, self._node.metrics
        metrics.add_labelled("requests", node.resources.requests.labelled_statistics)
        metrics.add("memory", node.resources.statistics)
        metrics.add("quorum", node.quorum.statistics)
        metrics.add("controller client", node.controller.statistics)
        metrics.add("cluster", self._cluster.statistics)
        metrics.add_labelled("flushes", SYNC_TIMES.labelled_statistics)
        metrics.add_labelled("disks", self._space.labelled_statistics)
        metrics.add_labelled("event loop", self.loop.labelled_statistics)
        metrics.add_labelled("registry", self._info)

    def add_broker(self, services: BrokerServices) -> None:
        """Add the figures of this node's broker."""
        self._groups = observe_broker(self._node, services)

    def _info(self) -> LabelledStatistics:
        config = self._node.config
        roles = ",".join(config.process_roles)
        return {"info": {(str(config.node_id), VERSION, roles): 1}}

    def bind(self) -> ListeningSocket | None:
        """Open the socket of `metrics.listener`, if there is one (StartError if it cannot be)."""
        address = self._node.config.metrics_listener
        return None if address is None else bind_address(self._node.environment.network, *address)

    async def run(self, sock: ListeningSocket | None, stopping: trio.Event) -> None:
        """Watch, and serve what was seen, until cancelled."""
        self._stopping = stopping
        self._node.quorum.subscribe(self._cluster.on_metadata)
        ClusterLog(self._node.quorum).start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._space.run)
            nursery.start_soon(self._slow_requests.run)
            if self._node.environment.has_threads:
                nursery.start_soon(self._manager.run, stopping)
            stall_ms = self._node.config.event_loop_stall_ms
            if self._node.environment.has_threads and stall_ms:
                nursery.start_soon(self._watch_stalls, stall_ms)
            elif sock is not None:
                nursery.start_soon(self.loop.run)
            if sock is not None:
                nursery.start_soon(self._serve, sock)

    async def _watch_stalls(self, stall_ms: int) -> None:
        watch = StallWatch(self.loop, stall_ms, self._node.environment.clock.ticks_ns)
        watch.start()
        try:
            await self.loop.run()
        finally:
            watch.stop()

    async def _serve(self, sock: ListeningSocket) -> None:
        # Here: they take a tenth of a second to load, and most nodes do without.
        from kraftrio.broker.metrics.endpoint import MetricsEndpoint
        from kraftrio.broker.metrics.http_server import HttpServer

        environment = self._node.environment
        endpoint = MetricsEndpoint(
            self._node.metrics,
            self._status,
            self._refresh,
            self._pushed,
            environment.run_in_thread,
        )
        await HttpServer(environment.network, sock, endpoint.page).run()

    def _pushed(self) -> Iterable[PushedFamily]:
        """What clients have pushed."""
        pushed = self._node.client_metrics
        now_ms = self._node.environment.clock.monotonic_ms()
        return () if pushed is None else pushed.families(now_ms)

    async def _refresh(self) -> None:
        """Have counted what is not counted as it happens, and ask others what only they know."""
        image = self._node.quorum.image
        await self._node.environment.run_in_thread(lambda: self._cluster.count(image))
        if self._groups is not None:
            with trio.move_on_after(_REFRESH_S):
                await self._groups.refresh().wait()

    def _status(self) -> Mapping[str, object]:
        node, config = self._node, self._node.config
        problems = [
            f"log directory {log_dir.path} is offline: {log_dir.failure}"
            for log_dir in node.storage.log_manager.dirs
            if not log_dir.is_online
        ]
        if node.quorum.leader_id < 0:
            problems.append("the metadata quorum has no leader")
        return {
            "is_ready": self.is_serving and not self._stopping.is_set(),
            "problems": problems,
            "node_id": config.node_id,
            "roles": config.process_roles,
            "cluster_id": node.storage.identity.cluster_id,
            "controller_id": node.quorum.leader_id,
        }


def client_metrics(config: BrokerConfig, quorum: QuorumService) -> ClientMetrics | None:
    """What takes the metrics of clients, where there is a place to show them."""
    if config.metrics_listener is None:
        return None

    def resources() -> list[Mapping[str, str]]:
        configs = quorum.image.configs
        return [texts for one, texts in configs.items() if one.type == CLIENT_METRICS]

    return ClientMetrics(resources, config.metrics_max_series)


def observe_broker(node: NodeContext, services: BrokerServices) -> GroupFigures:
    """Add the figures of a broker's parts."""
    metrics, coordination = node.metrics, services.coordination
    replicas, limit = services.replica_manager, node.config.metrics_max_series
    metrics.add("replicas", replicas.statistics)
    metrics.add_labelled("topics", replicas.traffics.labelled_statistics)
    metrics.add_labelled("logs", lambda: log_statistics(replicas.hosted.partitions(), limit))
    metrics.add("client quotas", services.throttle.statistics)
    metrics.add("fetchers", services.fetchers.statistics)
    metrics.add_labelled("replica lag", services.fetchers.labelled_statistics)
    metrics.add("groups", coordination.groups.statistics)
    metrics.add("transactions", coordination.transactions.statistics)
    metrics.add("share coordinator", coordination.share.statistics)
    metrics.add("markers", coordination.markers.statistics)
    metrics.add("verification", coordination.verification.statistics)
    metrics.add("share partitions", services.share_partitions.statistics)
    metrics.add("share state client", coordination.share_state.statistics)
    for use, links in coordination.links.items():
        metrics.add("links", links.statistics, use)

    def transactional_ids() -> dict[str, float]:
        shards = [shard.statistics() for shard in coordination.transactions.active_shards()]
        return {name: sum(one[name] for one in shards) for name in ("transactional_ids", "moves")}

    def own_high_watermark(topic_partition: TopicPartition) -> int | None:
        partition = replicas.hosted.partition(topic_partition)
        if partition is None or not partition.state.is_leader:
            return None
        return partition.state.high_watermark

    metrics.add("transactional ids", transactional_ids)
    groups = GroupFigures(
        coordination.groups, own_high_watermark, coordination.latest_offsets, limit
    )
    metrics.add_labelled("group kinds", groups.kinds)
    metrics.add_labelled("group events", groups.events)
    metrics.add_labelled("group members", groups.members)
    metrics.add_labelled("group lag", groups.lag)
    return groups
