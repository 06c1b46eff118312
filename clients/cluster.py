"""A client's view of its cluster: requests to the right broker, over metadata kept fresh.

Owns what the parts of a client share: the nodes (`nodes`), the metadata (`metadata_fetcher`) and
the coordinators found so far (`coordinators`). Calls its listeners back on changes. Rules:
1. Nothing is retried but metadata: a request that fails raises a typed error, and what may be done
   again its caller knows.
2. Metadata is asked for when a connection is lost: its broker may be gone, and its partitions be
   led elsewhere.
3. Everything runs in the nursery of `open_cluster`: leaving it closes every connection.

Called by: producer, consumer and admin client. KIP-35, KIP-511, KIP-951.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from kraftrio.base.background import open_background, run_aside
from kraftrio.clients import surroundings
from kraftrio.clients.config import ClientConfig
from kraftrio.clients.coordinators import Coordinators
from kraftrio.clients.diagnostics.notices import Notices
from kraftrio.clients.diagnostics.statistics import ClusterStatistics
from kraftrio.clients.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    KafkaClientError,
    RetriableError,
    TimedOutError,
    error_for,
)
from kraftrio.clients.metadata import BrokerAddress, ClusterMetadata, TopicMetadata
from kraftrio.clients.metadata_fetcher import MetadataFetcher
from kraftrio.clients.node import BrokerNode
from kraftrio.clients.nodes import Nodes
from kraftrio.clients.security import secured
from kraftrio.net.transport import Network
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ZERO_UUID

logger = logging.getLogger(__name__)

_REPORT_AFTER_S = 3.0  # a broker that is being restarted, or has just left, is not reported

FATAL_TOPIC_ERRORS = frozenset(
    {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)


class Cluster:
    """Made by `open_cluster`."""

    def __init__(
        self,
        config: ClientConfig,
        network: Network,
        nursery: trio.Nursery,
        rng: random.Random,
        topic_idle_ms: float,
    ) -> None:
        self.config = config
        self.network = network
        self.nursery = nursery  # of the client's tasks, which end with the cluster
        self.notices = Notices(logger)
        self._nodes = Nodes(config, network, nursery, rng, self._node_changed)
        self._fetcher = MetadataFetcher(
            self._nodes, config, rng, topic_idle_ms, self._notify, self.notices
        )
        self.coordinators = Coordinators(self._nodes, config, self.request_refresh)
        self._listeners: list[Callable[[], None]] = []
        self._on_refusal: list[Callable[[AuthenticationError], None]] = []

    async def run(self) -> None:
        """Keep metadata fresh until cancelled."""
        await self._fetcher.run()

    def check_open(self) -> None:
        """Raise ClosedError once the client is being closed."""
        self._fetcher.check_open()

    def close(self) -> None:
        """End the calls of other tasks that wait for metadata; `open_cluster` ends all else."""
        self._fetcher.close()

    # -- what is known --------------------------------------------------------------------------

    @property
    def metadata(self) -> ClusterMetadata:
        """The latest snapshot."""
        return self._fetcher.metadata

    @property
    def last_failure(self) -> KafkaClientError | None:
        """Why metadata could not be fetched the last time; None if it could."""
        return self._fetcher.failure

    def statistics(self) -> ClusterStatistics:
        """Return figures of this moment."""
        connected = self._nodes.connected
        return ClusterStatistics(
            brokers=self._nodes.known,
            connected_brokers=len(connected),
            requests_in_flight=sum(node.requests_in_flight for node in connected),
            topics=len(self.metadata.topics),
            last_failure=None if self.last_failure is None else str(self.last_failure),
        )

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back, synchronously, when metadata changed or a node became ready or was lost."""
        self._listeners.append(callback)

    def on_refusal(self, callback: Callable[[AuthenticationError], None]) -> None:
        """Call back, synchronously, whenever a broker does not let the client in."""
        self._on_refusal.append(callback)

    def node(self, node_id: int) -> BrokerNode | None:
        """Return the node with this id; None if its address is unknown."""
        return self._nodes.get(node_id)

    def _existing_node(self, node_id: int) -> BrokerNode:
        node = self.node(node_id)
        if node is None:
            self.request_refresh()
            raise BrokerUnavailableError(f"no broker with the id {node_id} is known")
        return node

    def _node_changed(self, node: BrokerNode) -> None:
        if not node.is_connected and node.node_id >= 0:
            self.request_refresh()  # it may be gone, and its partitions be led elsewhere
        self.note_refusal(node)
        self._report_unreachable(node)
        self._notify()

    def _report_unreachable(self, node: BrokerNode) -> None:
        """Warn of a broker that metadata names, and that is not where it says."""
        if node.node_id < 0:
            return  # the fetcher reports bootstrap servers, if none of them answers
        key = ("broker", node.node_id)
        if node.is_connected:
            self.notices.forget(key)
        elif node.unreachable_s >= _REPORT_AFTER_S:
            self.notices.warn(
                key,
                "broker %d cannot be reached at %s:%d, the address that the cluster gives: %s;"
                " see that it runs, and that this machine can use its advertised.listeners",
                node.node_id,
                node.host,
                node.port,
                node.failure,
            )

    def note_refusal(self, node: BrokerNode) -> None:
        """Fail what waits if the node has just refused to let the client in."""
        failure = node.failure
        if isinstance(failure, AuthenticationError) and not node.is_connected:
            self._fetcher.give_up(failure)
            for listener in self._on_refusal:
                listener(failure)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    # -- topics of interest ---------------------------------------------------------------------

    def set_topics(self, topics: Iterable[str]) -> None:
        """Name the topics that metadata is kept of, beside those in use."""
        self._fetcher.pin_topics(topics)

    def use_topic(self, topic: str) -> None:
        """Keep metadata of a topic for a while from now on."""
        self._fetcher.use_topic(topic)

    @property
    def want_all_topics(self) -> bool:
        """Whether metadata is kept of all topics there are."""
        return self._fetcher.wants_all

    @want_all_topics.setter
    def want_all_topics(self, wants_all: bool) -> None:
        self._fetcher.wants_all = wants_all

    # -- requests -------------------------------------------------------------------------------

    async def request(
        self,
        node_id: int,
        request: Any,
        timeout_s: float | None = None,
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> Any:
        """Send a request to one broker and wait for its response; connects if need be.

        Args:
            timeout_s: None is request_timeout_ms.

        Raises:
            BrokerUnavailableError: no broker has this id.
            NetworkError, TimedOutError: the response did not come.
            UnsupportedVersionError: the broker cannot do what is asked.
        """
        node = self._existing_node(node_id)
        if timeout_s is None:
            timeout_s = self.config.request_timeout_ms / 1000
        return await node.request(
            request, timeout_s, min_version=min_version, max_version=max_version
        )

    async def version(
        self, node_id: int, api_key: int, timeout_s: float, *, max_version: int | None = None
    ) -> int:
        """Return the version that requests of an API to a broker will have; connects if need be.

        It matters where a request looks different from one version to the next.

        Raises:
            BrokerUnavailableError, NetworkError, TimedOutError, UnsupportedVersionError: as
                `request`.
        """
        node = self._existing_node(node_id)
        with trio.move_on_after(timeout_s) as scope:
            await node.connect()
        if scope.cancelled_caught:
            raise TimedOutError(f"cannot connect to {node.host}:{node.port} in time")
        return node.versions.choose(api_key, max_version=max_version)

    async def request_any(
        self,
        request: Any,
        timeout_s: float | None = None,
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> Any:
        """Send a request to whichever broker answers: the least busy first, then the others.

        Raises:
            NetworkError, TimedOutError: none answers.
            UnsupportedVersionError: those reached cannot do what is asked.
        """
        if timeout_s is None:
            timeout_s = self.config.request_timeout_ms / 1000
        deadline = trio.current_time() + timeout_s
        failure: KafkaClientError | None = None
        for node in self._nodes.candidates():
            left_s = deadline - trio.current_time()
            if left_s <= 0:
                break
            try:
                return await node.request(
                    request, left_s, min_version=min_version, max_version=max_version
                )
            except RetriableError as error:
                failure = error
        raise failure or TimedOutError("no broker could be asked in time")

    async def request_controller(
        self, request: Any, timeout_s: float | None = None, *, max_version: int | None = None
    ) -> Any:
        """Send a request to the controller: the broker that Metadata names.

        Raises:
            BrokerUnavailableError: none is known even after a refresh.
            NetworkError, TimedOutError, UnsupportedVersionError: as `request`.
        """
        if self.node(self.metadata.controller_id) is None:
            await self.refresh(timeout_s=timeout_s)
        controller_id = self.metadata.controller_id
        if self.node(controller_id) is None:
            raise BrokerUnavailableError("the cluster has no controller at the moment")
        return await self.request(controller_id, request, timeout_s, max_version=max_version)

    # -- metadata -------------------------------------------------------------------------------

    def request_refresh(self) -> None:
        """Have metadata fetched soon."""
        self._fetcher.request()

    async def refresh(
        self, topics: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> ClusterMetadata:
        """Fetch metadata now, also of these topics from now on, and return it.

        Args:
            timeout_s: None is default_api_timeout_ms; infinite is allowed.

        Raises:
            AuthenticationError: a broker did not let the client in.
            TimedOutError: no broker answered in that time; says why the last one did not.
        """
        for topic in topics or ():
            self.use_topic(topic)
        if timeout_s is None:
            timeout_s = self.config.default_api_timeout_ms / 1000
        await self._fetcher.refresh(timeout_s)
        return self.metadata

    async def topic(self, topic: str, *, timeout_s: float | None = None) -> TopicMetadata:
        """Return a topic's metadata, waiting for it to be there.

        Raises:
            InvalidTopicError: no topic can have this name.
            UnknownTopicOrPartitionError, LeaderNotAvailableError: it is not there in that time.
            TimedOutError: no broker answered in that time.
        """
        self.use_topic(topic)
        if timeout_s is None:
            timeout_s = self.config.default_api_timeout_ms / 1000
        deadline = trio.current_time() + timeout_s
        known = self.metadata.topics.get(topic)
        while known is None or not known.partitions:
            try:
                await self.refresh((topic,), timeout_s=deadline - trio.current_time())
            except TimedOutError:
                if known is not None and known.error_code != ErrorCode.NONE:
                    raise error_for(
                        known.error_code,
                        f"topic {topic!r} is not there after {timeout_s:g} s:"
                        f" {known.error_code.text}",
                    ) from None
                raise self._fetcher.unreachable(timeout_s) from None
            known = self.metadata.topics.get(topic)
            # Only what has been heard just now counts: ACLs change.
            if known is not None and known.error_code in FATAL_TOPIC_ERRORS:
                raise error_for(known.error_code, f"topic {topic!r}: {known.error_code.text}")
        return known

    async def all_topics(self, *, timeout_s: float | None = None) -> dict[str, TopicMetadata]:
        """Fetch the metadata of all topics there are.

        Raises:
            TimedOutError: no broker answered in that time.
        """
        before = self.want_all_topics
        self.want_all_topics = True
        try:
            metadata = await self.refresh(timeout_s=timeout_s)
        finally:
            self.want_all_topics = before
        return dict(metadata.topics)

    def leader_hint(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        leader_epoch: int,
        endpoints: Collection[BrokerAddress] = (),
        *,
        topic_id: bytes = ZERO_UUID,
    ) -> bool:
        """Take the new leader that a broker named beside an error (KIP-951); True: it was news.

        Args:
            topic_id: of the topic that the broker was asked about.
        """
        changed = self.metadata.with_leader(
            topic, partition, leader_id, leader_epoch, endpoints, topic_id=topic_id
        )
        if changed is None:
            return False
        self._fetcher.install(changed)
        return True


def _check_trio() -> None:
    """Raise RuntimeError where a client is entered that another event loop would have to run."""
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "the clients of kraftrio run on Trio, and this program does not: under asyncio use"
            " those of kraftrio.asyncio"
        )


@asynccontextmanager
async def open_shielded_cluster(
    *,
    network: Network | None = None,
    config: ClientConfig,
    rng: random.Random | None = None,
    topic_idle_ms: float = math.inf,
) -> AsyncIterator[Cluster]:
    """As `open_cluster`, but a cancellation of the body ends none of the cluster's tasks.

    So a program that is cancelled can still say goodbye. Leaving the body ends the tasks.
    """

    @trio.lowlevel.enable_ki_protection  # as `run_aside`, which cannot tell when it has started
    async def run(task_status: trio.TaskStatus[tuple[Cluster, trio.CancelScope]]) -> None:
        with trio.CancelScope(shield=True) as scope:
            async with open_cluster(
                config=config, network=network, rng=rng, topic_idle_ms=topic_idle_ms
            ) as cluster:
                task_status.started((cluster, scope))
                await trio.sleep_forever()

    _check_trio()
    async with open_background() as nursery:
        cluster, scope = await nursery.start(run)
        try:
            yield cluster
        finally:
            scope.cancel()


@asynccontextmanager
async def open_cluster(
    bootstrap_servers: str | Sequence[str] | None = None,
    *,
    client_id: str = "",
    network: Network | None = None,
    config: ClientConfig | None = None,
    rng: random.Random | None = None,
    topic_idle_ms: float = math.inf,
) -> AsyncIterator[Cluster]:
    """Run a cluster's tasks while the body runs; connects to nothing before it is needed.

    Exceptions of the body come out as they are, not in a group.

    Args:
        config: all settings at once, instead of `bootstrap_servers` and `client_id`.
        topic_idle_ms: how long metadata of a topic is kept that `use_topic` no longer names.

    Raises:
        ConfigError: a setting is wrong, or a file that one names.
    """
    _check_trio()
    if config is None:
        assert bootstrap_servers is not None, "bootstrap servers, or a config with them"
        config = ClientConfig(bootstrap_servers=bootstrap_servers, client_id=client_id)
        config.check()
    way = secured(config, network or surroundings.network.get()(), config.client_id)
    async with open_background() as nursery:
        cluster = Cluster(config, way, nursery, rng or surroundings.chance.get()(), topic_idle_ms)
        nursery.start_soon(run_aside, cluster.run)
        try:
            yield cluster
        finally:
            cluster.close()
