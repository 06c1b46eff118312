"""The broker in a node: how it joins the cluster, serves, and leaves.

Owns: `BrokerRole`. The order of joining
1. Register, fenced; wait until the image holds the registration: it is then as new as anything that
   was committed before, so that no log is taken for a stray and no setting is out of date.
2. Load and recover the logs, with the settings that the image gives them; publish the image to the
   broker's parts; set aside the logs that it does not place here.
3. Follow leaders, heartbeat; the controller unfences the broker once it has caught up.
4. Once the image shows that, accept clients, and announce the broker. What it said of the cluster
   before would lack itself, and they drop a broker then. Clients that connect meanwhile wait.

The order of leaving: controlled shutdown (the controller moves the leaderships away), listeners and
fetchers ended, logs flushed and checkpointed with the clean shutdown marker.

Called by: `node`. Protocol: KIP-631.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import trio

from kraftrio.base.exception_groups import innermost
from kraftrio.base.start_errors import NodeError, StartError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.controller.channel import OtherClusterError, RegistrationError
from kraftrio.broker.controller.departure import Departure
from kraftrio.broker.log.manager.duplicate_logs import Placement, set_duplicates_aside
from kraftrio.broker.log.manager.log_dir import PendingLog
from kraftrio.broker.log.manager.log_dirs import LogDirError
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.settings import connection_limits, server_limits
from kraftrio.broker.node.stop_signals import cancel_when
from kraftrio.broker.node.wiring.services import BrokerServices
from kraftrio.broker.server.listening import BoundListener
from kraftrio.broker.server.resources import ServerResources
from kraftrio.broker.server.server import ServerListener
from kraftrio.broker.upkeep.maintenance import LogMaintenance
from kraftrio.kraft_meta.controller.control import registered_features
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.net.security_protocol import SecurityProtocol
from kraftrio.wire.messages.quorum import BrokerRegistrationRequest
from kraftrio.wire.messages.quorum import Listener as RegisteredListener
from kraftrio.wire.primitives import TopicPartition

_log = logging.getLogger("kraftrio.node")


class BrokerRole:
    """See the module; one per node with the broker role.

    Attributes:
        services: the broker's parts.
    """

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._config = node.config
        self._log_manager = node.storage.log_manager
        self.services = BrokerServices(node)

    # -- joining --------------------------------------------------------------------------------

    async def join(self, sockets: Sequence[BoundListener]) -> None:
        """Register and load what this broker has (steps 1 and 2).

        Raises:
            StartError: the controller refuses this broker, or no log directory can be used.
        """
        try:
            await self.services.channel.register(
                self._registration(sockets),
                self._config.initial_broker_registration_timeout_ms / 1000,
            )
        except OtherClusterError as error:
            # The quorum is asking which, and ends this node with both ids.
            await trio.sleep(self._config.controller_quorum_request_timeout_ms / 1000)
            raise StartError(str(error)) from error
        except RegistrationError as error:
            raise StartError(str(error)) from error
        broker_epoch = self.services.channel.broker_epoch
        await self._wait_for_image(lambda image: image.offset >= broker_epoch)
        await self._load_logs()
        self._node.quorum.subscribe(self.services.publisher.publish)
        self._set_stray_logs_aside()

    async def _wait_for_image(self, is_awaited: Callable[[MetadataImage], bool]) -> None:
        """Wait until such an image of the metadata is applied."""
        reached = trio.Event()

        def on_metadata(_delta: MetadataDelta, image: MetadataImage) -> None:
            if not reached.is_set() and is_awaited(image):
                reached.set()

        self._node.quorum.subscribe(on_metadata)
        await reached.wait()

    def _registration(self, sockets: Sequence[BoundListener]) -> BrokerRegistrationRequest:
        config = self._config
        advertised = {listener.name: listener for listener in config.advertised_broker_listeners}
        listeners = []
        for listener, sock in sockets:
            shown = advertised.get(listener.name, listener)
            listeners.append(
                RegisteredListener(
                    name=listener.name,
                    host=shown.host,
                    port=shown.port or sock.getsockname()[1],
                    security_protocol=SecurityProtocol[listener.protocol],
                )
            )
        return BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self._node.storage.identity.cluster_id,
            incarnation_id=self._node.environment.rng.randbytes(16),
            listeners=listeners,
            features=registered_features(),
            rack=config.broker_rack,
            log_dirs=[log_dir.directory_id for log_dir in self._log_manager.dirs],
        )

    async def _load_logs(self) -> None:
        """Load and recover the logs, several at a time; each may have much to read."""
        image = self._node.quorum.image
        self._node.dynamic.on_image(image)
        limiter = trio.CapacityLimiter(max(1, self._config.num_recovery_threads_per_data_dir))
        clock = self._node.environment.clock
        now_ms, began_ms = clock.wall_ms(), clock.monotonic_ms()

        async def load(pending: PendingLog) -> None:
            config = self._node.dynamic.log_config(image, pending.topic_partition.topic)
            async with limiter:
                await self._node.environment.run_in_thread(
                    lambda: self._log_manager.load_log(pending, config, now_ms)
                )

        pending_logs = set_duplicates_aside(
            self._log_manager, self._node.storage.pending_logs, partial(self._placement, image)
        )
        try:
            async with trio.open_nursery() as nursery:
                for pending in pending_logs:
                    nursery.start_soon(load, pending)
        except* LogDirError as group:
            raise StartError(str(group.exceptions[0])) from group
        self._log_manager.dirs.finish_loading()
        if pending_logs:
            _log.info(
                "logs loaded count=%d unclean_directories=%d ms=%d",
                len(pending_logs),
                sum(not log_dir.clean_shutdown for log_dir in self._log_manager.dirs),
                clock.monotonic_ms() - began_ms,
            )
        self._node.environment.freeze_objects()
        await self.services.moves.load()

    def _placement(self, image: MetadataImage, topic_partition: TopicPartition) -> Placement | None:
        """Where the metadata places a replica on this broker, if it does."""
        topic = image.topic(topic_partition.topic)
        partition = None if topic is None else topic.partitions.get(topic_partition.partition)
        broker_id = self._config.node_id
        if topic is None or partition is None or broker_id not in partition.replicas:
            return None
        return Placement(topic.topic_id, partition.directory(broker_id))

    def _set_stray_logs_aside(self) -> None:
        """Serve no log that the metadata does not place here, but keep its files.

        It may be of a topic that was deleted while this node was down, or all that is left after
        the metadata log was removed by hand: only a person can decide.
        """
        image = self._node.quorum.image
        broker_id = self._config.node_id

        def is_placed_here(topic_partition: tuple[str, int], topic_id: bytes | None) -> bool:
            topic = image.topic(topic_partition[0])
            if topic is None or topic_id not in (None, topic.topic_id):
                return False
            partition = topic.partitions.get(topic_partition[1])
            return partition is not None and broker_id in partition.replicas

        for log in self._log_manager.stray_logs(is_placed_here):
            kept_in = self._log_manager.set_aside(log.topic_partition)
            _log.warning("stray log set aside partition=%s kept=%s", log.topic_partition, kept_in)

    # -- serving --------------------------------------------------------------------------------

    async def serve(
        self,
        sockets: Sequence[BoundListener],
        stopping: trio.Event,
        on_ready: Callable[[], None],
    ) -> None:
        """Serve until the node is asked to stop, then leave the cluster in good order.

        Args:
            on_ready: called once when the controller has unfenced this broker.

        Raises:
            StartError: the controller did not let this broker in.
            NodeError: every log directory failed, or the controller rejects this broker.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._start_tasks(nursery)
                await self._become_active(nursery, stopping)
                if not stopping.is_set():
                    self._accept_clients(nursery, sockets)
                    on_ready()
                await stopping.wait()
                await self._leave()
                nursery.cancel_scope.cancel()
        except* LogDirError as group:
            raise NodeError(str(innermost(group))) from innermost(group)
        except* RegistrationError as group:
            raise NodeError(str(innermost(group))) from innermost(group)

    def _start_tasks(self, nursery: trio.Nursery) -> None:
        services, environment = self.services, self._node.environment
        maintenance = LogMaintenance(
            self._log_manager,
            environment.clock,
            lambda: self._node.dynamic.current,
            environment.run_in_thread,
            services.moves.is_moving,
        )
        self._node.metrics.add("upkeep", maintenance.statistics)
        nursery.start_soon(services.moves.run)
        nursery.start_soon(services.sliced_work.run)
        for coordinator in services.coordination.by_topic.values():
            nursery.start_soon(coordinator.run)
        for links in services.coordination.links.values():
            nursery.start_soon(links.run)
        nursery.start_soon(services.fetchers.run)
        nursery.start_soon(maintenance.run)

    def _accept_clients(self, nursery: trio.Nursery, sockets: Sequence[BoundListener]) -> None:
        services, security = self.services, self._node.security
        limits = server_limits(self._node.dynamic.current)
        for listener, sock in sockets:
            dispatcher = services.dispatcher()
            server = ServerListener(
                listener.name,
                sock,
                dispatcher,
                limits,
                security.serving_network(listener.name),
                self._node.resources,
                admission=security.admission(listener.name, dispatcher),
            )
            self._node.metrics.add("connections", server.statistics, listener.name)
            self._node.dynamic.subscribe(partial(_limit, server, self._node.resources))
            nursery.start_soon(server.run)

    async def _become_active(self, nursery: trio.Nursery, stopping: trio.Event) -> None:
        """Heartbeat until the image shows this broker unfenced, or the node stops; and go on."""
        channel = self.services.channel
        timeout_s = self._config.initial_broker_registration_timeout_ms / 1000
        with trio.CancelScope() as waiting:
            nursery.start_soon(cancel_when, stopping, waiting)
            try:
                await channel.wait_unfenced(timeout_s)
            except RegistrationError as error:
                raise StartError(str(error)) from error
        nursery.start_soon(channel.run_heartbeats)
        nursery.start_soon(
            channel.watch_failed_directories, self._config.log_dir_failure_timeout_ms / 1000
        )
        with trio.CancelScope() as waiting:
            nursery.start_soon(cancel_when, stopping, waiting)
            await self._wait_for_image(self._shows_unfenced)

    def _shows_unfenced(self, image: MetadataImage) -> bool:
        """Whether this broker is announced to clients."""
        broker = image.brokers.get(self._config.node_id)
        return broker is not None and not broker.fenced

    async def _leave(self) -> None:
        """Let the controller move the leaderships away, unless there is no controller any more."""
        config = self._config
        if not config.controlled_shutdown_enable:
            return
        departure = Departure(
            self._node.environment.network,
            self._node.quorum,
            config.node_id,
            self.services.channel.controlled_shutdown,
        )
        await departure.leave(config.kraftrio_shutdown_timeout_ms / 1000)

    async def close(self) -> None:
        """Flush, checkpoint and mark the logs as cleanly closed; after everything else has ended.

        In a thread, so that a second signal is heard meanwhile.
        """
        broker_epoch = self.services.channel.broker_epoch

        def close_logs() -> None:
            self.services.moves.close()
            self._log_manager.close(broker_epoch)

        await self._node.environment.run_in_thread(close_logs)


def _limit(server: ServerListener, resources: ServerResources, config: BrokerConfig) -> None:
    server.limit(server_limits(config))
    resources.connections.limit(connection_limits(config))
