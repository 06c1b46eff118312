"""The controller in a node: what its controller listener serves.

Owns: `ControllerRole`, the wiring of the quorum's requests, of those that brokers and
administrators send to the active controller, and of the watch over brokers' connections. The quorum
itself runs on every node (`QuorumService`), as an observer where the node is no controller.

Called by: `node`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import trio

from kraftrio.base.logging_setup import ProcessLoggers
from kraftrio.broker.api.acls import AclHandlers
from kraftrio.broker.api.api_versions import ApiVersionsHandler
from kraftrio.broker.api.configs import ConfigHandlers
from kraftrio.broker.api.controller import ControllerHandlers
from kraftrio.broker.api.delegation_tokens import DelegationTokenHandlers
from kraftrio.broker.api.envelope import EnvelopeHandler
from kraftrio.broker.api.quorum import QuorumHandlers
from kraftrio.broker.api.sasl import SaslHandlers
from kraftrio.broker.api.scram_users import ScramUserHandlers
from kraftrio.broker.api.shared.permitted_entries import permitted_entries
from kraftrio.broker.api.shared.refusals import refuse
from kraftrio.broker.api.unserved_apis import UNSERVED_BY_CONTROLLERS
from kraftrio.broker.controller.broker_sessions import BrokerSessions
from kraftrio.broker.controller.local_controller import LocalController
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.settings import (
    controller_connection_limits,
    server_limits,
    token_settings,
)
from kraftrio.broker.security.api_access import CONTROLLER_API_ACCESS
from kraftrio.broker.security.authorizer import trusting_nodes
from kraftrio.broker.server.admission.connection_quotas import ConnectionQuotas
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.listening import BoundListener
from kraftrio.broker.server.server import ServerListener
from kraftrio.broker.server.slices.sliced_work import SlicedWork
from kraftrio.kraft_meta.controller.control import DEFAULT_FEATURES
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage


class ControllerRole:
    """See the module; one per node with the controller role."""

    def __init__(self, node: NodeContext) -> None:
        quorum, environment = node.quorum, node.environment
        self._limits = server_limits(node.config)
        self._security = node.security
        # Its connections are counted by themselves, and come as fast as they can.
        self._resources = replace(
            node.resources, connections=ConnectionQuotas(controller_connection_limits(node.config))
        )
        self._metrics = node.metrics
        self._quorum = quorum
        self._sliced_work = SlicedWork(environment.clock.monotonic_ms)
        self._metadata = MetadataCache()
        self._authorizer = trusting_nodes(node.authorizer)
        self._sessions = BrokerSessions(
            environment.network,
            quorum,
            node.config.node_id,
            node.config.inter_broker_listener_name,
        )
        decider = LocalController(quorum)
        configs = ConfigHandlers(node.dynamic, self._metadata, decider, ProcessLoggers())
        controller = ControllerHandlers(
            decider,
            quorum,
            configs,
            node.timers,
            identity=quorum.identity,
            heartbeat_seen=self._sessions.heartbeat_seen,
        )
        self._handlers = {
            **permitted_entries(controller.table(), self._metadata),
            **SaslHandlers(node.timers).table(),
            **AclHandlers(decider, self._metadata).table(),
            **ScramUserHandlers(self._metadata, decider).table(),
            **DelegationTokenHandlers(
                self._metadata, decider, token_settings(node.config).secret_key
            ).table(),
            **QuorumHandlers(quorum, node.config.controller_listener_names).table(),
            **EnvelopeHandler(decider, node.timers).table(),
        }

    def _dispatcher(self) -> Dispatcher:
        api_versions = ApiVersionsHandler(
            lambda: dispatcher.advertised(), self._metadata, DEFAULT_FEATURES
        )
        dispatcher = Dispatcher(
            {**self._handlers, **api_versions.table()},
            UNSERVED_BY_CONTROLLERS,
            self._sliced_work,
            access=CONTROLLER_API_ACCESS,
            authorizer=self._authorizer,
            refuse=refuse,
        )
        return dispatcher

    def _on_metadata(self, _delta: MetadataDelta, image: MetadataImage) -> None:
        self._metadata.image = image

    async def run(self, sockets: Sequence[BoundListener]) -> None:
        """Serve the controller listeners until cancelled."""
        self._quorum.subscribe(self._on_metadata)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sessions.run)
            nursery.start_soon(self._sliced_work.run)
            for listener, sock in sockets:
                dispatcher = self._dispatcher()
                server = ServerListener(
                    listener.name,
                    sock,
                    dispatcher,
                    self._limits,
                    self._security.serving_network(listener.name),
                    self._resources,
                    admission=self._security.admission(listener.name, dispatcher),
                    for_peers=True,
                )
                self._metrics.add("connections", server.statistics, listener.name)
                nursery.start_soon(server.run)
