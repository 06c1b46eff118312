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
import posixpath
import random
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable

import trio

from kraftrio.broker.clock import Clock
from kraftrio.broker.config import BrokerConfig, Listener
from kraftrio.broker.config_validator import NodeConfigValidator
from kraftrio.broker.controller_channel import RegistrationError
from kraftrio.broker.dynamic_config import DynamicConfig
from kraftrio.broker.log.checkpoints import CheckpointError, read_meta_properties
from kraftrio.broker.log.files import FileSystem, OsFileSystem
from kraftrio.broker.log.log_manager import LogDirError, LogManager, PendingLog
from kraftrio.broker.log.metadata_log import (
    MetadataLog,
    MetadataLogError,
    QuorumStateFile,
    holds_foreign_records,
)
from kraftrio.broker.log_maintenance import LogMaintenance
from kraftrio.broker.server import Listener as ServerListener
from kraftrio.broker.server import ServerLimits, bind, innermost
from kraftrio.broker.services import BrokerServices
from kraftrio.broker.timers import Timers
from kraftrio.kraft_meta.control import DEFAULT_FEATURES, ControllerConfig
from kraftrio.kraft_meta.quorum_service import ClusterIdError, QuorumConfig, QuorumService
from kraftrio.kraft_meta.raft_ready import RaftConfig
from kraftrio.kraft_meta.records import UnknownRecordError
from kraftrio.wire.messages.quorum import BrokerRegistrationRequest, Feature
from kraftrio.wire.messages.quorum import Listener as RegisteredListener
from kraftrio.wire.primitives import uuid_to_text

_log = logging.getLogger("kraftrio.node")

METADATA_DIRECTORY = "__cluster_metadata-0"
_PLAINTEXT_PROTOCOL_ID = 0
_FILES_FOR_LOGS = 200
_EXIT_BY_SECOND_SIGNAL = 1
EXIT_FAILED = 1


class NodeError(Exception):
    """The node cannot go on; the text is one plain sentence for the user."""


class StartError(NodeError):
    """The node cannot start."""


class Node:
    """A node that is broker and controller.

    Args:
        announce: prints the ready line.
    """

    def __init__(
        self,
        config: BrokerConfig,
        fs: FileSystem,
        clock: Clock,
        rng: random.Random,
        announce: Callable[[str], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._announce = announce
        self._timers = Timers()
        self._dynamic = DynamicConfig(config, _log.warning)
        self._log_manager = LogManager(
            fs,
            config.log_dirs,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            new_id=lambda: rng.randbytes(16),
        )
        self._is_serving = False
        self._refuse_foreign_metadata(fs)
        self.cluster_id = _cluster_id(fs, config, rng)
        self._pending_logs = self._open_log_dirs()
        self._metadata_log, election_store = self._open_metadata_log(fs)
        validator = NodeConfigValidator(self._dynamic)
        self._quorum = QuorumService(
            _quorum_config(config),
            _controller_config(config, self.cluster_id),
            log=self._metadata_log,
            election_store=election_store,
            validator=validator,
            topic_configs=validator,
            clock=clock,
            rng=rng,
        )

    # -- storage --------------------------------------------------------------------------------

    def _refuse_foreign_metadata(self, fs: FileSystem) -> None:
        """Leave the storage of Apache Kafka as it is: its metadata cannot be read here."""
        directory = posixpath.join(self._config.metadata_log_dir, METADATA_DIRECTORY)
        try:
            is_foreign = holds_foreign_records(fs, directory)
        except OSError:
            return  # what opens the directory tells why it cannot be used
        if is_foreign:
            raise StartError(
                f"{self._config.metadata_log_dir} was written by Apache Kafka: kraftrio cannot take"
                " over its metadata log, so start with an empty data directory"
            )

    def _open_log_dirs(self) -> list[PendingLog]:
        try:
            return self._log_manager.start(self.cluster_id, self._config.node_id)
        except LogDirError as error:
            self._log_manager.release()
            raise StartError(str(error)) from error

    def _open_metadata_log(self, fs: FileSystem) -> tuple[MetadataLog, QuorumStateFile]:
        directory = posixpath.join(self._config.metadata_log_dir, METADATA_DIRECTORY)
        try:
            fs.make_directory(directory)
            log = MetadataLog(fs, directory, segment_bytes=self._config.metadata_log_segment_bytes)
        except (OSError, MetadataLogError) as error:
            self._log_manager.release()
            raise StartError(
                f"cannot open the metadata log in {directory}: {_reason(error)}"
            ) from error
        return log, QuorumStateFile(fs, directory)

    # -- run ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until a signal asks for a graceful stop.

        Raises:
            StartError: the node could not start.
            NodeError: a disk failed in a way that the node cannot go on.
        """
        sockets: list[tuple[Listener, socket.socket]] = []
        try:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async with trio.open_nursery() as nursery:
                    stopping = trio.Event()
                    nursery.start_soon(_watch_signals, signals, stopping)
                    sockets = self._bind_listeners()
                    await self._run_parts(sockets, stopping)
                    nursery.cancel_scope.cancel()
            _log.info("stopped")
        finally:
            for _, sock in sockets:
                sock.close()
            self._log_manager.release()
            self._metadata_log.close()

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
            # In a thread, so that a second signal is heard meanwhile.
            await trio.to_thread.run_sync(self._log_manager.close, services.channel.broker_epoch)

    async def _run_quorum(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the metadata quorum; a failed disk or a log that cannot be read ends the node."""
        try:
            await self._quorum.run(task_status)
        except* (OSError, MetadataLogError, UnknownRecordError, ClusterIdError) as group:
            directory = posixpath.join(self._config.metadata_log_dir, METADATA_DIRECTORY)
            error = innermost(group)
            kind = NodeError if self._is_serving else StartError
            raise kind(f"the metadata log in {directory} failed: {_reason(error)}") from error

    async def _start_services(
        self, nursery: trio.Nursery, sockets: list[tuple[Listener, socket.socket]]
    ) -> BrokerServices:
        """Load the logs, connect the broker's parts and register (steps 4 and 5)."""
        services = BrokerServices(
            self._dynamic, self._log_manager, self._quorum, self._timers, self._clock, self._rng
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
                sockets.append((listener, bind(listener.host, listener.port)))
            except OSError as error:
                for _, sock in sockets:
                    sock.close()
                reason = error.strerror or str(error)
                raise StartError(
                    f"cannot listen on {listener.host or '*'}:{listener.port}: {reason}"
                ) from error
        return sockets

    async def _load_logs(self) -> None:
        """Load and recover the logs, several at a time; each may have much to read."""
        image = self._quorum.image
        self._dynamic.on_image(image)
        limiter = trio.CapacityLimiter(max(1, self._config.num_recovery_threads_per_data_dir))
        now_ms = self._clock.wall_ms()

        async def load(pending: PendingLog) -> None:
            config = self._dynamic.log_config(image, pending.topic_partition.topic)
            await trio.to_thread.run_sync(
                self._log_manager.load_log, pending, config, now_ms, limiter=limiter
            )

        try:
            async with trio.open_nursery() as nursery:
                for pending in self._pending_logs:
                    nursery.start_soon(load, pending)
        except* LogDirError as group:
            raise StartError(str(group.exceptions[0])) from group
        self._log_manager.finish_loading()

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

        for log in self._log_manager.stray_logs(is_known):
            kept_in = self._log_manager.set_aside(log.topic_partition)
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
                    security_protocol=_PLAINTEXT_PROTOCOL_ID,
                )
            )
        request = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self._rng.randbytes(16),
            listeners=listeners,
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(DEFAULT_FEATURES.items())
            ],
            rack=config.broker_rack,
            log_dirs=[log_dir.directory_id for log_dir in self._log_manager.dirs],
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
        limits = _limits(config)
        maintenance = LogMaintenance(self._log_manager, self._clock, lambda: self._dynamic.current)
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


def _reason(error: BaseException) -> str:
    """What happened, in words for a user."""
    if isinstance(error, OSError) and error.strerror:
        name = f" ({error.filename})" if error.filename else ""
        return error.strerror + name
    return str(error)


def _cluster_id(fs: FileSystem, config: BrokerConfig, rng: random.Random) -> str:
    """The cluster id that the directories were formatted with; a new one on the first start."""
    for directory in (config.metadata_log_dir, *config.log_dirs):
        try:
            found = read_meta_properties(fs, directory)
        except CheckpointError as error:
            raise StartError(f"cannot understand {directory}: {error}") from error
        except OSError as error:
            if directory != config.metadata_log_dir:
                continue  # offline, and told so when the directories are opened
            raise StartError(f"cannot use {directory}: {_reason(error)}") from error
        if found is not None:
            return found.cluster_id
    return uuid_to_text(rng.randbytes(16))


def _quorum_config(config: BrokerConfig) -> QuorumConfig:
    return QuorumConfig(
        node_id=config.node_id,
        voters=(config.node_id,),
        raft=RaftConfig(
            election_timeout_ms=config.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
        ),
        metadata_log_max_record_bytes_between_snapshots=(
            config.metadata_log_max_record_bytes_between_snapshots
        ),
        metadata_log_max_snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
    )


def _controller_config(config: BrokerConfig, cluster_id: str) -> ControllerConfig:
    return ControllerConfig(
        cluster_id=cluster_id,
        node_id=config.node_id,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        delete_topic_enable=config.delete_topic_enable,
        broker_session_timeout_ms=config.broker_session_timeout_ms,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
    )


def _limits(config: BrokerConfig) -> ServerLimits:
    # Clients may not take the files that logs need: above this they wait as above max.connections.
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for_clients = max(open_files - max(_FILES_FOR_LOGS, open_files // 4), 1)
    return ServerLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        max_connections=min(config.max_connections, for_clients),
        max_connections_per_ip=config.max_connections_per_ip,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_in_flight_requests=config.kraftrio_max_inflight_requests_per_connection,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
    )


def run_until_stopped(config: BrokerConfig) -> int:
    """Run a node in this process until it is stopped, or fails.

    Returns:
        the exit status.

    Raises:
        StartError: one plain sentence why it cannot start.
    """
    for warning in config.warnings:
        _log.warning("%s", warning)
    _raise_open_files_limit()
    rng = random.SystemRandom()
    node = Node(config, OsFileSystem(), Clock(), rng, lambda line: print(line, flush=True))
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


def _raise_open_files_limit() -> None:
    """Every partition keeps a file open and every client a socket: take what the system grants."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
