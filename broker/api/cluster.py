"""DescribeCluster, DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UpdateFeatures, UnregisterBroker.

Behaviour (Kafka's)
- Brokers are described from the metadata image of this broker, with the endpoints of the listener a
  request came in by; fenced brokers are not shown unless asked for.
- Voters are neither added nor removed. Both APIs are offered all the same: clients tell from what a
  broker offers which version of Kafka it is.
Version notes: DescribeCluster 1: endpoint type (KIP-919), 2: fenced brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.shared.authorized_operations import cluster_operations
from kraftrio.broker.api.shared.endpoint_types import BROKER_ENDPOINT, refuse_endpoint_type
from kraftrio.broker.api.shared.static_voters import refuse_to_add, refuse_to_remove
from kraftrio.broker.api.shared.visible_cluster import controller_for_clients
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.ports import ControllerPort, MetadataPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kraftrio.wire.messages.quorum import DescribeQuorumRequest
from kraftrio.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.fitting import fit_version


class ClusterHandlers:
    """Serves the cluster APIs of one broker.

    Args:
        describe_quorum: asks the leader of the metadata quorum, which may be this node.
    """

    def __init__(
        self,
        dynamic: DynamicConfig,
        metadata: MetadataPort,
        controller: ControllerPort,
        describe_quorum: Callable[[DescribeQuorumRequest], Deferred[Any]],
    ) -> None:
        self._dynamic = dynamic
        self._metadata = metadata
        self._controller = controller
        self._describe_quorum = describe_quorum
        self._node_id = dynamic.static.node_id

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.DESCRIBE_QUORUM: self.describe_quorum,
            ApiKey.ADD_RAFT_VOTER: self.add_voter,
            ApiKey.REMOVE_RAFT_VOTER: self.remove_voter,
            ApiKey.UPDATE_FEATURES: self.forward,
            ApiKey.UNREGISTER_BROKER: self.forward,
        }

    def forward(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """Let the active controller answer."""
        return self._controller.submit(request, api_version=context.api_version)

    def describe_quorum(
        self, request: DescribeQuorumRequest, context: RequestContext
    ) -> Deferred[Any]:
        """Describe the metadata quorum; its leader answers in the newest version."""
        return self._describe_quorum(request).map(
            lambda described: fit_version(described, context.api_version)
        )

    def add_voter(
        self, request: AddRaftVoterRequest, _context: RequestContext
    ) -> AddRaftVoterResponse:
        """Refuse to add a voter, as every node would."""
        names = self._dynamic.static.controller_listener_names
        return refuse_to_add(request, self._metadata.image.cluster_id, names)

    def remove_voter(
        self, request: RemoveRaftVoterRequest, _context: RequestContext
    ) -> RemoveRaftVoterResponse:
        """Refuse to remove a voter, as every node would."""
        return refuse_to_remove(request, self._metadata.image.cluster_id)

    def describe_cluster(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> DescribeClusterResponse:
        """Describe the brokers."""
        refused = refuse_endpoint_type(request, BROKER_ENDPOINT, context.api_version)
        if refused is not None:
            return refused
        image = self._metadata.image
        brokers, alive = [], []
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            endpoint = broker.endpoint(context.listener_name)
            if endpoint is None or (broker.fenced and not request.include_fenced_brokers):
                continue
            if not broker.fenced:
                alive.append(broker_id)
            brokers.append(
                DescribeClusterBroker(
                    broker_id=broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    # Versions without the field are never given a fenced broker.
                    is_fenced=broker.fenced,
                )
            )
        return DescribeClusterResponse(
            endpoint_type=BROKER_ENDPOINT,
            cluster_id=image.cluster_id,
            controller_id=controller_for_clients(self._node_id, alive),
            brokers=brokers,
            cluster_authorized_operations=cluster_operations(
                context, is_asked=request.include_cluster_authorized_operations
            ),
        )
