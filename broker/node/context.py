"""What the roles of one node share: its settings, disks, quorum, and the world outside.

Called by: `node`, which builds it once and hands it to the roles.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftrio.base.timers import Timers
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.controller.client import ControllerClient
from kraftrio.broker.metrics.registry import MetricsRegistry
from kraftrio.broker.metrics.telemetry.client_metrics import ClientMetrics
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.security.secured_listeners import NodeSecurity
from kraftrio.broker.node.storage import NodeStorage
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.resources import ServerResources
from kraftrio.kraft_meta.quorum.service import QuorumService


@dataclass(frozen=True, slots=True)
class NodeContext:
    """See the module.

    Attributes:
        dynamic: the settings in force.
        controller: the way to the active controller.
        authorizer: decides who may do what, by the newest metadata.
        resources: what all listeners share.
        client_metrics: takes what clients push; None: nothing is shown, so nothing is pushed.
        metrics: the figures of the node's parts, which each part adds itself to.
        security: how peers are let in, and other nodes dialled.
    """

    dynamic: DynamicConfig
    storage: NodeStorage
    quorum: QuorumService
    controller: ControllerClient
    timers: Timers
    environment: Environment
    resources: ServerResources
    metrics: MetricsRegistry
    client_metrics: ClientMetrics | None
    security: NodeSecurity
    authorizer: Authorizer = ALLOW_ALL

    @property
    def config(self) -> BrokerConfig:
        """The settings that the node started with."""
        return self.dynamic.static
