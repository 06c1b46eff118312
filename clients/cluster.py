"""A client's view of its cluster: nodes, metadata kept fresh, and requests to the right broker.

Owns the nodes (`node`), the metadata snapshot (`metadata`), the cache of coordinators, and one task
that refreshes metadata. Rules:
1. Metadata is fetched when `metadata_max_age_ms` have passed, when somebody asks
   (`refresh`, `request_refresh`), when a connection is lost, and never more often than
   `retry_backoff_ms`, growing to `retry_backoff_max_ms` while nothing gets better; only a topic
   that is new to the client does not wait for that. Nothing is fetched before it is wanted.
2. It tells of the topics of interest: those named by `set_topics`, and those that `use_topic` named
   within `topic_idle_ms`; all of them while `want_all_topics`.
3. It comes from the connected broker with the least to do, else from any other known one; if none
   can be reached, or a broker says so, from the bootstrap servers again (KIP-899, KIP-1102).
4. Nothing is retried but metadata: a request that fails raises a typed error, and what may be done
   again its caller knows.
5. Everything runs in the nursery of `open_cluster`: leaving it closes every connection.

Called by: producer, consumer and admin client. KIP-35, KIP-511, KIP-899, KIP-951, KIP-1102.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from kraftrio.clients.config import ClientConfig, parse_bootstrap_servers
from kraftrio.clients.errors import (
    BrokerUnavailableError,
    KafkaClientError,
    RetriableError,
    TimedOutError,
    error_for,
)
from kraftrio.clients.metadata import BrokerAddress, ClusterMetadata, TopicMetadata
from kraftrio.clients.node import Node
from kraftrio.net.transport import Network, SystemNetwork
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.protocol.api import ApiKey

GROUP_KEY_TYPE: Final = 0
TRANSACTION_KEY_TYPE: Final = 1

_FATAL_TOPIC_ERRORS = frozenset(
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
        self.nursery = nursery  # of the client's tasks, which end with the cluster
        self.want_all_topics = False
        self._network = network
        self._rng = rng
        self._topic_idle_s = topic_idle_ms / 1000
        self._addresses = parse_bootstrap_servers(config.bootstrap_servers)
        self._metadata = ClusterMetadata()
        self._nodes: dict[int, Node] = {}
        self._bootstrap: list[Node] = []
        self._coordinators: dict[tuple[int, str], int] = {}
        self._listeners: list[Callable[[], None]] = []
        self._topics: dict[str, float] = {}  # name -> when it was used last
        self._pinned: frozenset[str] = frozenset()
        self._wanted = trio.Event()  # that metadata be fetched
        self._urgent = trio.Event()  # that it be fetched without backoff
        self._awaited = trio.Event()  # set after the first fetch that begins from now on
        self._failure: KafkaClientError | None = None
        self._fruitless = 0  # fetches in a row that brought nothing new

    # -- what is known --------------------------------------------------------------------------

    @property
    def metadata(self) -> ClusterMetadata:
        """The latest snapshot."""
        return self._metadata

    @property
    def last_failure(self) -> KafkaClientError | None:
        """Why metadata could not be fetched the last time; None if it could."""
        return self._failure

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return (node_id, leader_epoch) of a partition's leader; None when none is known."""
        return self._metadata.leader(topic, partition)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back, synchronously, when metadata changed or a node became ready or was lost."""
        self._listeners.append(callback)

    def node(self, node_id: int) -> Node | None:
        """Return the node with this id; None if the metadata knows none."""
        found = self._nodes.get(node_id)
        address = self._metadata.brokers.get(node_id)
        if address is None:
            return found
        if found is None:
            found = self._nodes[node_id] = self._make_node(node_id, address.host, address.port)
        return found

    def _make_node(self, node_id: int, host: str, port: int) -> Node:
        return Node(
            node_id,
            host,
            port,
            self.config,
            self._network,
            self.nursery,
            self._rng,
            self._node_changed,
        )

    def _node_changed(self, node: Node) -> None:
        if not node.is_connected and node.node_id >= 0:
            self.request_refresh()  # it may be gone, and its partitions be led elsewhere
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    # -- topics of interest ---------------------------------------------------------------------

    def set_topics(self, topics: Iterable[str]) -> None:
        """Name the topics that metadata is kept of, beside those in use."""
        self._pinned = frozenset(topics)
        if self._pinned - self._metadata.topics.keys():
            self._hurry()

    def use_topic(self, topic: str) -> None:
        """Keep metadata of a topic for a while from now on."""
        is_new = topic not in self._topics
        self._topics[topic] = trio.current_time()
        if is_new and topic not in self._metadata.topics:
            self._hurry()

    def _topics_of_interest(self) -> set[str]:
        oldest = trio.current_time() - self._topic_idle_s
        self._topics = {name: used for name, used in self._topics.items() if used >= oldest}
        return {*self._topics, *self._pinned}

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
        node = self.node(node_id)
        if node is None:
            self.request_refresh()
            raise BrokerUnavailableError(f"no broker with the id {node_id} is known")
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
        node = self.node(node_id)
        if node is None:
            self.request_refresh()
            raise BrokerUnavailableError(f"no broker with the id {node_id} is known")
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
        for node in self._candidates():
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
        if self.node(self._metadata.controller_id) is None:
            await self.refresh(timeout_s=timeout_s)
        controller_id = self._metadata.controller_id
        if self.node(controller_id) is None:
            raise BrokerUnavailableError("the cluster has no controller at the moment")
        return await self.request(controller_id, request, timeout_s, max_version=max_version)

    async def coordinator(
        self, key: str, key_type: int = GROUP_KEY_TYPE, timeout_s: float | None = None
    ) -> int:
        """Return the node id of the coordinator of a group (or transactional id).

        What was found is remembered until `forget_coordinator`.

        Raises:
            CoordinatorNotAvailableError: there is none yet; try again after retry_backoff_ms.
            KafkaClientError: whatever else the broker answers, or as `request_any`.
        """
        found = self._coordinators.get((key_type, key))
        if found is not None and self.node(found) is not None:
            await trio.lowlevel.checkpoint()
            return found
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response: FindCoordinatorResponse = await self._ask_coordinator(request, timeout_s)
        if response.coordinators:
            told = response.coordinators[0]
            code, message = told.error_code, told.error_message
            address = BrokerAddress(told.node_id, told.host, told.port)
        else:
            code, message = response.error_code, response.error_message
            address = BrokerAddress(response.node_id, response.host, response.port)
        if code != ErrorCode.NONE:
            raise error_for(code, message)
        if self.node(address.node_id) is None:
            node_id = address.node_id
            self._nodes[node_id] = self._make_node(node_id, address.host, address.port)
            self.request_refresh()
        self._coordinators[key_type, key] = address.node_id
        return address.node_id

    async def _ask_coordinator(
        self, request: FindCoordinatorRequest, timeout_s: float | None
    ) -> Any:
        """Ask in the broker's version: from 4 on keys go into the list, before into the field."""
        if timeout_s is None:
            timeout_s = self.config.request_timeout_ms / 1000
        failure: KafkaClientError | None = None
        deadline = trio.current_time() + timeout_s
        for node in self._candidates():
            try:
                with trio.move_on_at(deadline) as scope:
                    await node.connect()
                if scope.cancelled_caught:
                    raise TimedOutError(f"cannot connect to {node.host}:{node.port} in time")
                version = node.versions.choose(ApiKey.FIND_COORDINATOR)
                asked = (
                    FindCoordinatorRequest(
                        key_type=request.key_type, coordinator_keys=request.coordinator_keys
                    )
                    if version >= 4
                    else FindCoordinatorRequest(key=request.key, key_type=request.key_type)
                )
                left_s = max(deadline - trio.current_time(), 0.001)
                return await node.request(asked, left_s, max_version=version)
            except RetriableError as error:
                failure = error
        raise failure or TimedOutError("no broker could be asked in time")

    def forget_coordinator(self, key: str, key_type: int = GROUP_KEY_TYPE) -> None:
        """Look the coordinator up anew the next time: it is another one, or cannot be reached."""
        self._coordinators.pop((key_type, key), None)

    def _candidates(self) -> list[Node]:
        """The nodes to ask what any broker knows, best first; bootstrap servers come last."""
        known = [node for id_ in self._metadata.brokers if (node := self.node(id_)) is not None]
        now = trio.current_time()
        ranked = sorted(
            known,
            key=lambda node: (
                not node.is_connected,
                node.requests_in_flight if node.is_connected else max(node.ready_at, now),
                self._rng.random(),
            ),
        )
        if not known or self.config.metadata_recovery_strategy == "rebootstrap":
            ranked += self._bootstrap_nodes()
        return ranked

    def _bootstrap_nodes(self) -> list[Node]:
        if not self._bootstrap:
            self._bootstrap = [
                self._make_node(-1 - index, host, port)
                for index, (host, port) in enumerate(self._addresses)
            ]
        return self._bootstrap

    # -- metadata -------------------------------------------------------------------------------

    def request_refresh(self) -> None:
        """Have metadata fetched soon."""
        self._wanted.set()

    def _hurry(self) -> None:
        """Have metadata fetched at once: of a topic that nothing is known about."""
        self._wanted.set()
        self._urgent.set()

    async def refresh(
        self, topics: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> ClusterMetadata:
        """Fetch metadata now, also of these topics from now on, and return it.

        Args:
            timeout_s: None is default_api_timeout_ms; infinite is allowed.

        Raises:
            TimedOutError: no broker answered in that time; says why the last one did not.
        """
        for topic in topics or ():
            self.use_topic(topic)
        if timeout_s is None:
            timeout_s = self.config.default_api_timeout_ms / 1000
        self._wanted.set()
        with trio.move_on_after(max(timeout_s, 0)) as scope:  # the rest of a time that may be up
            await self._awaited.wait()
        if scope.cancelled_caught:
            raise self._unreachable(timeout_s)
        return self._metadata

    def _unreachable(self, timeout_s: float) -> TimedOutError:
        servers = ", ".join(f"{host}:{port}" for host, port in self._addresses)
        because = f": {self._failure}" if self._failure is not None else ""
        return TimedOutError(f"no broker of {servers} answered within {timeout_s:g} s{because}")

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
        known = self._metadata.topics.get(topic)
        while known is None or not known.partitions:
            if known is not None and known.error_code in _FATAL_TOPIC_ERRORS:
                raise error_for(known.error_code, f"topic {topic!r}: {known.error_code.text}")
            try:
                await self.refresh((topic,), timeout_s=deadline - trio.current_time())
            except TimedOutError:
                if known is not None and known.error_code != ErrorCode.NONE:
                    raise error_for(
                        known.error_code,
                        f"topic {topic!r} is not there after {timeout_s:g} s:"
                        f" {known.error_code.text}",
                    ) from None
                raise self._unreachable(timeout_s) from None
            known = self._metadata.topics.get(topic)
        return known

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
        """Take the new leader that a broker told beside an error (KIP-951); True: it was news.

        Args:
            topic_id: of the topic that the broker was asked about.
        """
        changed = self._metadata.with_leader(
            topic, partition, leader_id, leader_epoch, endpoints, topic_id=topic_id
        )
        if changed is None:
            return False
        self._install(changed)
        return True

    def _install(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        for node_id, node in list(self._nodes.items()):
            address = metadata.brokers.get(node_id)
            if address is not None:
                node.host, node.port = address.host, address.port
            elif metadata.brokers and not node.is_connected and not node.is_connecting:
                del self._nodes[node_id]
        self._notify()

    async def _keep_fresh(self) -> None:
        """Fetch metadata whenever it is wanted or old; a failed round is repeated."""
        awaited: list[trio.Event] = []
        await self._wanted.wait()
        while True:
            self._wanted = trio.Event()
            self._urgent = trio.Event()
            awaited.append(self._awaited)
            self._awaited = trio.Event()
            before = self._metadata
            if await self._fetch():
                for event in awaited:
                    event.set()
                awaited.clear()
            else:
                self._wanted.set()
                self._urgent = trio.Event()  # who cannot be reached is not hurried
            self._fruitless = (
                0 if _is_progress(before, self._metadata) else min(self._fruitless + 1, 30)
            )
            with trio.move_on_after(self._backoff_s()):
                await self._urgent.wait()
            with trio.move_on_after(self.config.metadata_max_age_ms / 1000):
                await self._wanted.wait()

    def _backoff_s(self) -> float:
        backoff_ms = self.config.retry_backoff_ms * 2.0 ** max(self._fruitless - 1, 0)
        backoff_ms = min(backoff_ms, float(self.config.retry_backoff_max_ms))
        return backoff_ms * self._rng.uniform(0.8, 1.2) / 1000

    async def _fetch(self) -> bool:
        """Ask one broker after the other; True when one has answered."""
        topics = None if self.want_all_topics else self._topics_of_interest()
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=self.config.allow_auto_create_topics,
        )
        started_at = trio.current_time()
        trigger_s = self.config.metadata_recovery_rebootstrap_trigger_ms / 1000
        candidates = self._candidates()
        while candidates:
            node = candidates.pop(0)
            if (
                node.node_id >= 0
                and self.config.metadata_recovery_strategy == "rebootstrap"
                and trio.current_time() - started_at > trigger_s
            ):
                continue  # long enough in vain: on to the bootstrap servers
            try:
                response: MetadataResponse = await node.request(
                    request, self.config.request_timeout_ms / 1000
                )
            except KafkaClientError as error:
                self._failure = error
                continue
            if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._failure = error_for(response.error_code)
                candidates = [other for other in candidates if other.node_id < 0]
                continue
            if not response.brokers:
                continue  # it has only begun to start
            self._failure = None
            self._install(self._metadata.updated(response, topics))
            for other in self._bootstrap:
                if not other.requests_in_flight:
                    other.close()
            return True
        return False


def _is_progress(before: ClusterMetadata, after: ClusterMetadata) -> bool:
    """Whether a fetch told anything new, or there is nothing left to be found out."""
    if before is after:
        return False
    complete = all(
        topic.error_code == ErrorCode.NONE
        and all(partition.leader_id >= 0 for partition in topic.partitions.values())
        for topic in after.topics.values()
    )
    return complete or before.topics != after.topics or before.brokers != after.brokers


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
        ConfigError: a setting is wrong.
    """
    if config is None:
        assert bootstrap_servers is not None, "who shall be asked?"
        config = ClientConfig(bootstrap_servers=bootstrap_servers, client_id=client_id)
        config.check()
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        cluster = Cluster(
            config, network or SystemNetwork(), nursery, rng or random.Random(), topic_idle_ms
        )
        nursery.start_soon(cluster._keep_fresh)
        try:
            yield cluster
        except (Exception, trio.Cancelled) as error:
            failure = error  # raised below: from here the nursery would wrap it in a group
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
