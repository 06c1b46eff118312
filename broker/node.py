"""One process: builds a node from its configuration, runs it, and stops it in good order.

Order of a start
1. Storage: the log directories are locked, `meta.properties` read or written, the metadata log
   opened.
2. Sockets are bound, so that a taken port is told at once, but nobody is accepted yet.
3. The metadata quorum elects its leader; the newest committed image is known.
4. The partitions' logs are loaded and recovered, with the settings that the image gives them.
5. The image is published to the broker's parts; the broker registers and is unfenced.
6. The listeners accept clients, and the ready line is printed.

Order of a graceful stop (SIGTERM, SIGINT): controlled shutdown, listeners closed, logs flushed and
checkpointed with the clean shutdown marker, directories unlocked.  A signal during the start ends
it where it is.  A second signal ends the process at once.

What ends a node by itself: its metadata log's disk fails, or every log directory is offline.  Both
are told in one line (`NodeError`); any other exception is a fault of ours and shows its traceback.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable

import trio

from kraftrio.broker.config import BrokerConfig, Listener
from kraftrio.broker.config_validator import NodeConfigValidator
from kraftrio.broker.controller_channel import RegistrationError
from kraftrio.broker.dynamic_config import DynamicConfig
from kraftrio.broker.environment import Environment
from kraftrio.broker.log.log_manager import LogDirError, PendingLog
from kraftrio.broker.log.metadata_log import MetadataLogError
from kraftrio.broker.log_maintenance import LogMaintenance
from kraftrio.broker.node_errors import NodeError, StartError, reason
from kraftrio.broker.node_settings import (
    PLAINTEXT_PROTOCOL_ID,
    controller_config,
    quorum_config,
    raise_open_files_limit,
    server_limits,
)
from kraftrio.broker.server import Listener as ServerListener
from kraftrio.broker.server import innermost
from kraftrio.broker.services import BrokerServices
from kraftrio.broker.storage import NodeStorage
from kraftrio.broker.timers import Timers
from kraftrio.kraft_meta.control import DEFAULT_FEATURES
from kraftrio.kraft_meta.quorum_service import ClusterIdError, QuorumService
from kraftrio.kraft_meta.records import UnknownRecordError
from kraftrio.wire.messages.quorum import BrokerRegistrationRequest, Feature
from kraftrio.wire.messages.quorum import Listener as RegisteredListener

_log = logging.getLogger("kraftrio.node")

_EXIT_BY_SECOND_SIGNAL = 1
EXIT_FAILED = 1


class Node:
    """A node that is broker and controller.

    Args:
        announce: prints the ready line.

    Raises:
        StartError: its storage cannot be used.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        announce: Callable[[str], None],
    ) -> None:
        self._config = config
        self._environment = environment
        self._announce = announce
        self._timers = Timers()
        self._dynamic = DynamicConfig(config, _log.warning)
        self._storage = NodeStorage(config, environment)
        self.cluster_id = self._storage.cluster_id
        self._is_serving = False
        validator = NodeConfigValidator(self._dynamic)
        self._quorum = QuorumService(
            quorum_config(config),
            controller_config(config, self.cluster_id),
            log=self._storage.metadata_log,
            election_store=self._storage.election_store,
            validator=validator,
            topic_configs=validator,
            clock=environment.clock,
            rng=environment.rng,
            run_in_thread=environment.run_in_thread,
        )

    # -- run ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until a signal asks for a graceful stop (see `run_until`)."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                stopping = trio.Event()
                nursery.start_soon(_watch_signals, signals, stopping)
                await self.run_until(stopping)
                nursery.cancel_scope.cancel()
        _log.info("stopped")

    async def run_until(self, stopping: trio.Event) -> None:
        """Run until `stopping` is set, then stop in good order.

        Raises:
            StartError: the node could not start.
            NodeError: a disk failed in a way that the node cannot go on.
        """
        sockets: list[tuple[Listener, socket.socket]] = []
        try:
            sockets = self._bind_listeners()
            await self._run_parts(sockets, stopping)
        finally:
            for _, sock in sockets:
                sock.close()
            self._storage.release()

    async def _run_parts(
        self, sockets: list[tuple[Listener, socket.socket]], stopping: trio.Event
    ) -> None:
        services: BrokerServices | None = None
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as starting:
                nursery.start_soon(_cancel_when, stopping, starting)
                nursery.start_soon(self._timers.run)
                await nursery.start(self._run_quorum)
                services = await self._start_services(nursery, sockets)
            if services is not None:
                await self._serve(services, sockets, stopping)
            nursery.cancel_scope.cancel()
        if services is not None:
            broker_epoch = services.channel.broker_epoch
            log_manager = self._storage.log_manager
            # In a thread, so that a second signal is heard meanwhile.
            await self._environment.run_in_thread(lambda: log_manager.close(broker_epoch))

    async def _run_quorum(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the metadata quorum; a failed disk or a log that cannot be read ends the node."""
        try:
            await self._quorum.run(task_status)
        except* (OSError, MetadataLogError, UnknownRecordError, ClusterIdError) as group:
            directory = self._storage.metadata_directory
            error = innermost(group)
            kind = NodeError if self._is_serving else StartError
            raise kind(f"the metadata log in {directory} failed: {reason(error)}") from error

    async def _start_services(
        self, nursery: trio.Nursery, sockets: list[tuple[Listener, socket.socket]]
    ) -> BrokerServices:
        """Load the logs, connect the broker's parts and register (steps 4 and 5)."""
        services = BrokerServices(
            self._dynamic, self._storage.log_manager, self._quorum, self._timers, self._environment
        )
        await self._load_logs()
        self._quorum.subscribe(services.publisher.publish)
        self._set_stray_logs_aside()
        nursery.start_soon(services.coordinator.run)
        await self._register(services, sockets)
        return services

    def _bind_listeners(self) -> list[tuple[Listener, socket.socket]]:
        sockets = []
        for listener in self._config.broker_listeners:
            try:
                sockets.append(
                    (listener, self._environment.network.bind(listener.host, listener.port))
                )
            except OSError as error:
                for _, sock in sockets:
                    sock.close()
                raise StartError(
                    f"cannot listen on {listener.host or '*'}:{listener.port}:"
                    f" {error.strerror or error}"
                ) from error
        return sockets

    async def _load_logs(self) -> None:
        """Load and recover the logs, several at a time; each may have much to read."""
        image = self._quorum.image
        self._dynamic.on_image(image)
        limiter = trio.CapacityLimiter(max(1, self._config.num_recovery_threads_per_data_dir))
        now_ms = self._environment.clock.wall_ms()
        log_manager = self._storage.log_manager

        async def load(pending: PendingLog) -> None:
            config = self._dynamic.log_config(image, pending.topic_partition.topic)
            async with limiter:
                await self._environment.run_in_thread(
                    lambda: log_manager.load_log(pending, config, now_ms)
                )

        try:
            async with trio.open_nursery() as nursery:
                for pending in self._storage.pending_logs:
                    nursery.start_soon(load, pending)
        except* LogDirError as group:
            raise StartError(str(group.exceptions[0])) from group
        log_manager.finish_loading()

    def _set_stray_logs_aside(self) -> None:
        """Serve no log that the metadata does not place here, but keep its files.

        It may be of a topic that was deleted while this node was away, or all that is left after
        somebody removed the metadata log: only a person can tell.
        """
        image = self._quorum.image

        def is_known(topic_partition: tuple[str, int], topic_id: bytes | None) -> bool:
            topic = image.topic(topic_partition[0])
            return (
                topic is not None
                and topic_id in (None, topic.topic_id)
                and topic_partition[1] in topic.partitions
            )

        for log in self._storage.log_manager.stray_logs(is_known):
            kept_in = self._storage.log_manager.set_aside(log.topic_partition)
            _log.warning("stray log set aside partition=%s kept=%s", log.topic_partition, kept_in)

    async def _register(
        self, services: BrokerServices, sockets: list[tuple[Listener, socket.socket]]
    ) -> None:
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
                    security_protocol=PLAINTEXT_PROTOCOL_ID,
                )
            )
        request = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self._environment.rng.randbytes(16),
            listeners=listeners,
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(DEFAULT_FEATURES.items())
            ],
            rack=config.broker_rack,
            log_dirs=[log_dir.directory_id for log_dir in self._storage.log_manager.dirs],
        )
        try:
            await services.channel.register(
                request, config.initial_broker_registration_timeout_ms / 1000
            )
        except RegistrationError as error:
            raise StartError(str(error)) from error

    async def _serve(
        self,
        services: BrokerServices,
        sockets: list[tuple[Listener, socket.socket]],
        stopping: trio.Event,
    ) -> None:
        """Accept clients until the node shall stop, then shut down in good order."""
        config = self._config
        limits = server_limits(config)
        maintenance = LogMaintenance(
            self._storage.log_manager, self._environment.clock, lambda: self._dynamic.current
        )
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(services.channel.run_heartbeats)
                nursery.start_soon(maintenance.run)
                for listener, sock in sockets:
                    server = ServerListener(listener.name, sock, services.dispatcher(), limits)
                    nursery.start_soon(server.run)
                self._is_serving = True
                self._tell_ready(sockets)
                await stopping.wait()
                if config.controlled_shutdown_enable:
                    with trio.move_on_after(config.kraftrio_shutdown_timeout_ms / 1000):
                        await services.channel.controlled_shutdown()
                nursery.cancel_scope.cancel()
        except* LogDirError as group:
            raise NodeError(str(innermost(group))) from innermost(group)

    def _tell_ready(self, sockets: list[tuple[Listener, socket.socket]]) -> None:
        config = self._config
        host = config.broker_listeners[0].host or socket.gethostname()
        port = sockets[0][1].getsockname()[1]
        _log.info(
            "started node=%d cluster=%s listener=%s:%d",
            config.node_id,
            self.cluster_id,
            host,
            port,
        )
        self._announce(
            f"kraftrio ready {host}:{port} node={config.node_id} data={config.log_dirs[0]}"
        )


async def _watch_signals(signals: AsyncIterator[int], stopping: trio.Event) -> None:
    """The first signal asks for a graceful stop; after a second the logs recover at the start."""
    async for number in signals:
        name = signal.Signals(number).name
        if stopping.is_set():
            _log.warning("stopping at once signal=%s", name)
            os._exit(_EXIT_BY_SECOND_SIGNAL)
        _log.info("stopping signal=%s", name)
        stopping.set()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def run_until_stopped(config: BrokerConfig) -> int:
    """Run a node in this process until it is stopped, or fails.

    Returns:
        the exit status.

    Raises:
        StartError: one plain sentence why it cannot start.
    """
    for warning in config.warnings:
        _log.warning("%s", warning)
    raise_open_files_limit()
    node = Node(config, Environment(), lambda line: print(line, flush=True))
    failure: BaseException | None = None
    try:
        trio.run(node.run)
    except* NodeError as group:
        failure = innermost(group)
    if failure is None:
        return 0
    if isinstance(failure, StartError):
        raise failure
    _log.critical("stopped: %s", failure)
    return EXIT_FAILED
