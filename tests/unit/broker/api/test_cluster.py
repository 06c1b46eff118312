"""The cluster described, its quorum, and what is forwarded to the controller."""

from __future__ import annotations

import pytest

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    NO_AUTHORIZED_OPERATIONS,
    DescribeClusterRequest,
)
from kraftrio.wire.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    UnregisterBrokerRequest,
)
from tests.unit.broker.api.cluster_context import CLUSTER_ID, ClusterContext, context


def test_describe_cluster() -> None:
    """Brokers of the listener, fenced ones only when asked."""
    cluster = ClusterContext(brokers={1: True, 2: False})
    response = cluster.cluster.describe_cluster(DescribeClusterRequest(), context(2))
    assert [(one.broker_id, one.host) for one in response.brokers] == [(1, "b1")]
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 1)
    assert response.cluster_authorized_operations == NO_AUTHORIZED_OPERATIONS
    request = DescribeClusterRequest(
        include_fenced_brokers=True, include_cluster_authorized_operations=True
    )
    response = cluster.cluster.describe_cluster(request, context(2))
    assert [(one.broker_id, one.is_fenced) for one in response.brokers] == [(1, False), (2, True)]
    assert response.cluster_authorized_operations == 8096


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (7, 115)])
def test_describe_cluster_for_other_endpoints(endpoint_type: int, code: int) -> None:
    """A broker does not know controllers' endpoints, nor about unknown ones."""
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    response = ClusterContext().cluster.describe_cluster(request, context(1))
    assert response.error_code == code
    assert response.brokers == []


def test_controller_requests_are_forwarded() -> None:
    """UnregisterBroker is the controller's."""
    cluster = ClusterContext()
    response = cluster.cluster.forward(UnregisterBrokerRequest(broker_id=77), context(0))
    assert response.value.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_described_in_every_version(version: int) -> None:
    """The leader returns all it knows; older versions go without endpoints and directories."""
    cluster = ClusterContext()
    request = DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name="t")])
    response = cluster.cluster.describe_quorum(request, context(version)).value
    decoded, _ = decode(DescribeQuorumResponse, version, encode(response, version))
    assert [node.node_id for node in decoded.nodes] == ([1] if version >= 2 else [])
    (voter,) = decoded.topics[0].partitions[0].current_voters
    assert voter.replica_directory_id == (b"\x01" * 16 if version >= 2 else bytes(16))
