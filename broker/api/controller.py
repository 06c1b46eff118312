"""What the controller listener serves besides the quorum's own requests: `ControllerHandlers`.

Behaviour (Kafka's ControllerApis)
- Requests of brokers (registration, heartbeats, ISR changes, producer ids) and those that brokers
  forward for their clients go to the active controller of this node; when another node is it, the
  answer is NOT_CONTROLLER and the sender looks for that one.
- Clients may come here on their own (--bootstrap-controller, KIP-919): DescribeCluster lists the
  controllers and names the active one; broker and topic metadata is not served here.
- Configurations are described from what this node knows. Levels of loggers are changed on this node
  alone; any broker's configuration may be changed here, without that broker.

Called by: the dispatcher of the controller listener, beside api/quorum.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.shared.authorized_operations import cluster_operations
from kraftrio.broker.api.shared.decision_parts import (
    decide_in_parts,
    is_excessive,
    refuse_excessive,
)
from kraftrio.broker.api.shared.decisions import decide_in_time, in_version
from kraftrio.broker.api.shared.endpoint_types import CONTROLLER_ENDPOINT, refuse_endpoint_type
from kraftrio.broker.ports import ControllerPort, MetadataQuorum, SchedulerPort
from kraftrio.broker.server.context import ClientInfo, HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.metadata.image import BROKER_LOGGER
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity
from kraftrio.wire.messages.admin import ElectLeadersRequest
from kraftrio.wire.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kraftrio.wire.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from kraftrio.wire.messages.quorum import BrokerHeartbeatRequest
from kraftrio.wire.protocol.api import ApiKey

# Takes the broker's id and epoch, and the connection that it heartbeats on.
HeartbeatSeen = Callable[[int, int, ClientInfo], object]


class NodeConfigs(Protocol):
    """Describes configurations, and changes the levels of this node's loggers."""

    def describe_configs(self, request: Any, context: RequestContext) -> Any: ...

    def incremental_alter_configs(self, request: Any, context: RequestContext) -> Any: ...


class ControllerHandlers:
    """Serves the controller listener of one node.

    Args:
        controller: decides on requests, or answers that this node is not the controller.
        quorum: who leads, and where the controllers listen.
        heartbeat_seen: called with each heartbeat's broker and connection, before the decision.
    """

    def __init__(
        self,
        controller: ControllerPort,
        quorum: MetadataQuorum,
        configs: NodeConfigs,
        scheduler: SchedulerPort,
        *,
        identity: ClusterIdentity,
        heartbeat_seen: HeartbeatSeen | None = None,
    ) -> None:
        self._controller = controller
        self._quorum = quorum
        self._configs = configs
        self._scheduler = scheduler
        self._identity = identity
        self._heartbeat_seen = heartbeat_seen

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.CREATE_TOPICS: self.decide_in_time,
            ApiKey.DELETE_TOPICS: self.decide_in_time,
            ApiKey.CREATE_PARTITIONS: self.decide_in_time,
            ApiKey.ELECT_LEADERS: self.elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.decide_in_time,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.decide_in_time,
            ApiKey.DESCRIBE_CONFIGS: self._configs.describe_configs,
            ApiKey.ALTER_CONFIGS: self.decide,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
            ApiKey.ALTER_CLIENT_QUOTAS: self.decide,
            ApiKey.UPDATE_FEATURES: self.decide,
            ApiKey.UNREGISTER_BROKER: self.decide,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.BROKER_REGISTRATION: self.decide,
            ApiKey.BROKER_HEARTBEAT: self.broker_heartbeat,
            ApiKey.ALTER_PARTITION: self.decide,
            ApiKey.ALLOCATE_PRODUCER_IDS: self.decide,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: self.decide,
        }

    def decide(self, request: Any, context: RequestContext) -> Work[Any]:
        """Let the controller decide; the answer comes once it is committed."""
        return decide_in_parts(
            partial(self._controller.submit, api_version=context.api_version), request
        )

    def decide_in_time(self, request: Any, context: RequestContext) -> Work[Any]:
        """Let the controller decide, for as long as the client waits."""
        return decide_in_parts(
            partial(
                decide_in_time,
                self._controller.submit,
                self._scheduler,
                api_version=context.api_version,
            ),
            request,
        )

    def elect_leaders(self, request: ElectLeadersRequest, context: RequestContext) -> Work[Any]:
        """Let the controller decide; version 0 reports an error by its partitions alone."""
        return in_version(self.decide_in_time(request, context), context.api_version)

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, context: RequestContext
    ) -> Deferred[Any]:
        """Let the controller decide, and note the connection that it came by."""
        if self._heartbeat_seen is not None:
            self._heartbeat_seen(request.broker_id, request.broker_epoch, context.client)
        return self._controller.submit(request, api_version=context.api_version)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> Work[Any]:
        """Change loggers here, and let the controller decide on everything else."""
        if (yield from is_excessive(request)):
            return refuse_excessive(request)
        loggers: list[IncrementalAlterConfigsResource] = []
        others: list[IncrementalAlterConfigsResource] = []
        for resource in request.resources:
            (loggers if resource.resource_type == BROKER_LOGGER else others).append(resource)
            yield None
        if not loggers:
            return (yield from self.decide(request, context))
        changed: IncrementalAlterConfigsResponse
        changed = yield from self._configs.incremental_alter_configs(
            IncrementalAlterConfigsRequest(resources=loggers, validate_only=request.validate_only),
            context,
        )
        if not others:
            return changed
        decision = yield from self.decide(
            IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only),
            context,
        )

        def with_loggers(
            response: IncrementalAlterConfigsResponse,
        ) -> IncrementalAlterConfigsResponse:
            response.responses = [*response.responses, *changed.responses]
            return response

        if isinstance(decision, Deferred):
            return decision.map(with_loggers)
        return with_loggers(decision)

    def describe_cluster(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> DescribeClusterResponse:
        """Describe the controllers that have a listener of the name the client came in by."""
        refused = refuse_endpoint_type(request, CONTROLLER_ENDPOINT, context.api_version)
        if refused is not None:
            return refused
        nodes = []
        voters = self._quorum.voters.current
        for node_id in voters:
            for endpoint in voters.endpoints(node_id):
                if endpoint.listener_name == context.listener_name:
                    node = DescribeClusterBroker(
                        broker_id=node_id, host=endpoint.host, port=endpoint.port, rack=None
                    )
                    nodes.append(node)
        leader_id = self._quorum.leader_id
        return DescribeClusterResponse(
            endpoint_type=CONTROLLER_ENDPOINT,
            cluster_id=self._identity.cluster_id,
            # A controller that the client could not find in the list is not named.
            controller_id=leader_id if any(n.broker_id == leader_id for n in nodes) else -1,
            brokers=nodes,
            cluster_authorized_operations=cluster_operations(
                context, is_asked=request.include_cluster_authorized_operations
            ),
        )
