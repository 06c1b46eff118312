"""One process: builds a node from its configuration, runs it, and stops it in good order.

Order of a start
1. Key stores are read. Storage: the log directories are locked, `meta.properties` read or written,
   the metadata log opened.
2. Sockets are bound, so that a port in use is reported at once; no client is accepted yet.
3. The metadata quorum: its log is loaded, it talks to its peers; a controller's listener accepts.
4. A broker joins the cluster and serves (`broker_role`), and the ready line is printed.

Order of a graceful stop (SIGTERM, SIGINT, SIGHUP): the broker leaves the cluster, an active
controller hands over to another voter, everything ends, the logs are flushed and marked as cleanly
closed, directories unlocked.  A signal during the start ends it where it is.  A second signal ends
the process at once (`stop_signals`).

What ends a node by itself: its metadata log's disk fails, or every log directory is offline, or the
controller rejects this broker.  Each is reported in one line (`NodeError`); any other exception
is a bug and shows its traceback.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

import trio

from kraftrio.base.exception_groups import innermost
from kraftrio.base.line_output import STANDARD_OUTPUT, LineOutput
from kraftrio.base.live_objects import LiveObjects
from kraftrio.base.start_errors import NodeError, StartError, reason
from kraftrio.base.timers import Timers
from kraftrio.broker.config.attributes import address_text
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.config.validator import NodeConfigValidator
from kraftrio.broker.controller.client import ControllerClient
from kraftrio.broker.controller.quorum_peers import QuorumPeers
from kraftrio.broker.log.metadata.names import MetadataLogError
from kraftrio.broker.metrics.registry import MetricsRegistry
from kraftrio.broker.node.broker_role import BrokerRole
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.controller_role import ControllerRole
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.security.acl_updates import AclUpdates
from kraftrio.broker.node.security.secured_listeners import NodeSecurity
from kraftrio.broker.node.settings import (
    controller_client_config,
    controller_config,
    log_start,
    node_authorizer,
    quorum_config,
    raise_open_files_limit,
    server_resources,
    voter_set,
)
from kraftrio.broker.node.stop_signals import cancel_when, is_impatient, stop_signals_received
from kraftrio.broker.node.storage import NodeStorage
from kraftrio.broker.node.watch.observation import Observation, client_metrics
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.listening import BoundListener, bind_listeners
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import UnknownRecordError
from kraftrio.kraft_meta.metadata.security_records import UserScramCredentialRecord
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdError
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.kraft_meta.quorum.settings import QuorumPorts
from kraftrio.kraft_meta.raft.ports import NoPeers
from kraftrio.kraft_meta.raft.raft_log import CommittedRecordsError

_log = logging.getLogger("kraftrio.node")

_METADATA_ERRORS = (
    OSError,
    MetadataLogError,
    UnknownRecordError,
    CommittedRecordsError,
    ClusterIdError,
)
Companion: TypeAlias = Callable[[Mapping[str, str]], Awaitable[None]]
"""What runs beside a broker that serves, until it is asked to stop.

It is a client like others: it gets the addresses of the listeners by their security protocols.
"""

_EXIT_BY_SECOND_SIGNAL = 1
_HAND_OVER_MS = 1000
EXIT_FAILED = 1

_EVERYWHERE = ("", "0.0.0.0", "::")


class Node:
    """A node with the roles that its configuration names.

    Args:
        announce: prints the ready line.
        first_credentials: what the first users get, if this node leads a new cluster first.
        companion: runs beside its broker.

    Raises:
        StartError: its storage cannot be used.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        announce: Callable[[str], None],
        first_credentials: tuple[UserScramCredentialRecord, ...] = (),
        companion: Companion | None = None,
    ) -> None:
        self._config = config
        self._companion = companion
        self._first_credentials = first_credentials
        self._environment = environment
        self._announce = announce
        self._timers = Timers()
        self._dynamic = DynamicConfig(config, _log.warning)
        self._security = NodeSecurity(self._dynamic, environment)
        self._storage = NodeStorage(config, environment)
        self._serving = trio.Event()
        self._peers = self._make_peers()
        self._quorum = self._make_quorum()
        self._quorum.subscribe(self._on_metadata)
        self._context = NodeContext(
            dynamic=self._dynamic,
            storage=self._storage,
            quorum=self._quorum,
            controller=ControllerClient(
                self._security.controllers,
                self._quorum,
                config.node_id,
                self._timers,
                controller_client_config(config),
            ),
            timers=self._timers,
            environment=environment,
            resources=server_resources(config, environment),
            metrics=MetricsRegistry(config.metrics_max_series),
            client_metrics=client_metrics(config, self._quorum),
            security=self._security,
            authorizer=self._make_authorizer(),
        )
        self._observation = Observation(self._context)
        self._controller = ControllerRole(self._context) if config.is_controller else None
        self._broker = BrokerRole(self._context) if config.is_broker else None
        if self._broker is not None:
            self._observation.add_broker(self._broker.services)

    def _on_metadata(self, _delta: MetadataDelta, image: MetadataImage) -> None:
        is_current = image.offset >= 0 and self._quorum.leader_id >= 0
        self._security.on_metadata(image, is_current=is_current)

    def _make_peers(self) -> QuorumPeers | None:
        """The way to the other voters; None in a quorum of one."""
        config = self._config
        if voter_set(config).is_sole_voter(config.node_id):
            return None
        return QuorumPeers(
            self._security.controllers,
            config.node_id,
            self._storage.directory_id,
            quorum_config(config).raft,
        )

    def _make_quorum(self) -> QuorumService:
        validator = NodeConfigValidator(self._dynamic)
        quorum = QuorumService(
            quorum_config(self._config),
            controller_config(
                self._config, self._storage.identity.cluster_id, self._first_credentials
            ),
            QuorumPorts(
                log=self._storage.metadata_log,
                election_store=self._storage.election_store,
                validator=validator,
                topic_configs=validator,
                clock=self._environment.clock,
                rng=self._environment.rng,
                peers=self._peers or NoPeers(),
                run_in_thread=self._environment.run_in_thread,
            ),
            self._storage.identity,
        )
        if self._peers is not None:
            self._peers.attach(quorum)
        return quorum

    def _make_authorizer(self) -> Authorizer:
        """What decides who may do what; nobody acts by an image before it does."""
        authorizer = node_authorizer(self._config)
        if authorizer is None:
            return ALLOW_ALL
        updates = AclUpdates(authorizer, self._environment.freeze_objects)
        self._quorum.subscribe(updates.on_metadata)
        return authorizer

    # -- run ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until a signal asks for a graceful stop (see `run_until`)."""
        with stop_signals_received() as signals:
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
            NodeError: a disk failed, and the node cannot continue.
        """
        sockets: list[BoundListener] = []
        try:
            bind_listeners(self._config, self._environment.network, sockets)
            metrics_socket = self._observation.bind()
            controller_names = self._config.controller_listener_names
            for_broker = [one for one in sockets if one[0].name not in controller_names]
            for_controller = [one for one in sockets if one[0].name in controller_names]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._observation.run, metrics_socket, stopping)
                nursery.start_soon(self._run_companion, for_broker, stopping)
                with trio.CancelScope() as starting:
                    nursery.start_soon(cancel_when, stopping, starting)
                    await self._start(nursery, for_broker, for_controller)
                if not starting.cancelled_caught:
                    await self._serve(for_broker or for_controller, stopping)
                    await self._quorum.leadership_transfer.hand_over(_HAND_OVER_MS)
                nursery.cancel_scope.cancel()
            if self._broker is not None and not starting.cancelled_caught:
                await self._broker.close()
        finally:
            for _, sock in sockets:
                sock.close()
            self._storage.release()

    async def _start(
        self,
        nursery: trio.Nursery,
        for_broker: list[BoundListener],
        for_controller: list[BoundListener],
    ) -> None:
        """Start the parts of the node, each after those that it needs."""
        nursery.start_soon(self._timers.run)
        nursery.start_soon(self._context.resources.run)
        nursery.start_soon(self._security.run)
        if self._peers is not None:
            await nursery.start(self._peers.run)
        await nursery.start(self._run_quorum)
        nursery.start_soon(self._context.controller.run)
        if self._controller is not None:
            nursery.start_soon(self._controller.run, for_controller)
        if self._broker is not None:
            await self._take_cluster_id()
            await self._broker.join(for_broker)
        else:
            nursery.start_soon(self._take_cluster_id)

    async def _take_cluster_id(self) -> None:
        """Wait until the quorum says which cluster this is, and write that to the directories.

        A voter waits for the other voters of a new cluster as long as it takes.
        """
        config, identity = self._config, self._storage.identity
        if not identity.is_known:
            known = trio.Event()
            self._quorum.subscribe(lambda _delta, image: image.cluster_id and known.set())
            timeout_s = config.initial_broker_registration_timeout_ms / 1000
            with trio.move_on_after(math.inf if config.is_controller else timeout_s):
                await known.wait()
        if not identity.is_known:
            raise StartError(
                f"no controller told broker {config.node_id} within {timeout_s:g} s which cluster"
                " this is"
            )
        await self._environment.run_in_thread(self._storage.format)

    async def _serve(self, sockets: list[BoundListener], stopping: trio.Event) -> None:
        """Work until the node is asked to stop."""
        if self._broker is None:
            self._report_ready(sockets)
            await stopping.wait()
        else:
            await self._broker.serve(sockets, stopping, lambda: self._report_ready(sockets))

    async def _run_quorum(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the metadata quorum; a failed disk or a log that cannot be read ends the node."""
        try:
            await self._quorum.run(task_status)
        except* _METADATA_ERRORS as group:
            directory = self._storage.metadata_directory
            error = innermost(group)
            kind = NodeError if self._serving.is_set() else StartError
            text = f"the metadata log in {directory} failed: {reason(error)}"
            if isinstance(error, ClusterIdError):
                text = str(error).replace("the metadata log", f"the metadata log in {directory}")
            raise kind(text) from error

    async def _run_companion(self, sockets: list[BoundListener], stopping: trio.Event) -> None:
        if self._companion is None:
            return
        await self._serving.wait()
        addresses: dict[str, str] = {}
        for listener, sock in sockets:
            host = listener.host if listener.host not in _EVERYWHERE else "localhost"
            address = address_text(host, sock.getsockname()[1])
            addresses.setdefault(listener.protocol, address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when, stopping, nursery.cancel_scope)
            await self._companion(addresses)
            nursery.cancel_scope.cancel()

    def _report_ready(self, sockets: list[BoundListener]) -> None:
        self._serving.set()
        self._observation.serves()
        config = self._config
        listener, sock = sockets[0]
        address = address_text(listener.host or socket.gethostname(), sock.getsockname()[1])
        _log.info(
            "started node=%d cluster=%s listener=%s",
            config.node_id,
            self._storage.identity.cluster_id,
            address,
        )
        self._announce(f"kraftrio ready {address} node={config.node_id} data={config.log_dirs[0]}")


async def _watch_signals(signals: AsyncIterator[int], stopping: trio.Event) -> None:
    """Stop gracefully at the first signal, at once at a second: logs then recover."""
    earlier: list[int] = []
    async for number in signals:
        name = signal.Signals(number).name
        if is_impatient(earlier, number):
            _log.warning("stopping at once signal=%s", name)
            os._exit(_EXIT_BY_SECOND_SIGNAL)
        earlier.append(number)
        if not stopping.is_set():
            _log.info("stopping signal=%s", name)
            stopping.set()


def _announce(line: str) -> None:
    """Print the ready line; a node whose output cannot be written serves all the same."""
    output = LineOutput(STANDARD_OUTPUT)
    output.write(f"{line}\n")
    if output.failure is not None:
        _log.warning("the ready line cannot be written reason=%s", output.failure)


def run_until_stopped(
    config: BrokerConfig,
    first_credentials: tuple[UserScramCredentialRecord, ...] = (),
    companion: Companion | None = None,
) -> int:
    """Run a node in this process until it is stopped, or fails.

    Args:
        first_credentials: those of the first users, where the cluster is new.
        companion: runs beside its broker.

    Returns:
        the exit status.

    Raises:
        StartError: one plain sentence why it cannot start.
    """
    raise_open_files_limit()
    log_start(config)
    for warning in config.warnings:
        _log.warning("%s", warning)
    environment = Environment(has_threads=True, freeze_objects=LiveObjects().freeze)
    node = Node(config, environment, _announce, first_credentials, companion)
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
