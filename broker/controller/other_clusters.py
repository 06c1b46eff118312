"""Finds out whether this node's quorum is another cluster's: `OtherClusters`.

Rules: a voter that answers with INCONSISTENT_CLUSTER_ID is asked which cluster it belongs to. When
a majority of the voters belongs to another cluster, and this node has had no leader since it
started, the node ends with both ids (ClusterIdError).

Called by: quorum_peers.py.
Tested by: tests/unit/broker/controller/test_quorum_peers.py, by whole nodes.
"""

from __future__ import annotations

import logging

from kraftrio.base.owned_tasks import OwnedTasks
from kraftrio.broker.controller.snapshot_download import Connect
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdError
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.cluster import DescribeClusterRequest

_log = logging.getLogger("kraftrio.metadata")

_CONTROLLER_ENDPOINT = 2


class OtherClusters:
    """See the module; `service` knows this node's cluster, and is ended by another one."""

    def __init__(
        self, service: QuorumService, connect: Connect, tasks: OwnedTasks, timeout_s: float
    ) -> None:
        self._service = service
        self._connect = connect
        self._tasks = tasks
        self._timeout_s = timeout_s
        self._found: dict[int, str] = {}  # voters of another cluster, and its id
        self._asked: set[int] = set()

    def ask(self, node_id: int) -> None:
        """Ask a voter which cluster it belongs to, unless it is being asked."""
        if node_id in self._asked or not self._service.identity.is_known:
            return
        if self._tasks.start(self._ask, node_id):
            self._asked.add(node_id)

    async def _ask(self, node_id: int) -> None:
        request = DescribeClusterRequest(endpoint_type=_CONTROLLER_ENDPOINT)
        try:
            async with self._connect(node_id) as connection:
                response = await connection.call(request, 1, self._timeout_s)
        except (ConnectionLost, RemoteProtocolError) as error:
            _log.info("cluster id cannot be asked for node=%d reason=%s", node_id, error)
        else:
            self._on_cluster_id(node_id, response.cluster_id)
        self._asked.discard(node_id)

    def _on_cluster_id(self, node_id: int, cluster_id: str) -> None:
        identity, voters = self._service.identity, self._service.voters.current
        if identity.admits(cluster_id):
            self._found.pop(node_id, None)
            return
        host, port = voters.address(node_id) or ("?", 0)
        source = f"the quorum's node {node_id} at {host}:{port}"
        if self._found.get(node_id) != cluster_id:
            _log.warning(
                "%s is of cluster %s, this node of %s", source, cluster_id, identity.cluster_id
            )
        self._found[node_id] = cluster_id
        if len(self._found) >= voters.majority and not self._service.has_been_led:
            try:
                identity.learn(cluster_id, source)
            except ClusterIdError as error:
                self._service.fail(error)
