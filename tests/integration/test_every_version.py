"""Every API in every version, asked on both kinds of listeners of a cluster's nodes.

Handlers mostly know only the newest version of an answer: what an older one has no place for must
be left out, not end the connection. The cluster has what answers describe (voters with endpoints,
a topic with a record, a group's offset); the requests read these, or name nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages import admin, cluster, data, groups, quorum, security
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.records.batch import Record, build_batch
from tests.conformance.cluster_process import Cluster
from tests.integration.wire_client import WireClient

TOPIC, GROUP = "t", "g"

# What would change the cluster, or keep the test waiting, if it were sent with defaults.
_NOT_ASKED = {
    ApiKey.UNREGISTER_BROKER,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UPDATE_FEATURES,
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, broker and controller each."""
    with Cluster(tmp_path_factory.mktemp("versions"), 3, kind="kraftrio") as started:
        with client(started.node(1).address) as first:
            assert first.create_topic(TOPIC) == ErrorCode.NONE
        yield started


def client(address: str) -> WireClient:
    host, _, port = address.rpartition(":")
    return WireClient((host, int(port)))


def requests(version: int) -> dict[ApiKey, Any]:
    """Requests whose answers have something in them; others are sent with their defaults."""
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, b"k", b"v")]))
    metadata = quorum.DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata",
        partitions=[quorum.DescribeQuorumRequestPartitionData()],
    )
    produced = data.TopicProduceData(
        name=TOPIC if version < 13 else "",
        partition_data=[data.PartitionProduceData(index=0, records=memoryview(batch))],
    )
    return {
        ApiKey.PRODUCE: data.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[produced]),
        ApiKey.API_VERSIONS: cluster.ApiVersionsRequest(
            client_software_name="t", client_software_version="1"
        ),
        ApiKey.DESCRIBE_ACLS: security.DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        ),
        ApiKey.METADATA: cluster.MetadataRequest(topics=None if version else []),
        ApiKey.DESCRIBE_QUORUM: quorum.DescribeQuorumRequest(topics=[metadata]),
        ApiKey.DESCRIBE_GROUPS: groups.DescribeGroupsRequest(groups=[GROUP]),
        ApiKey.ELECT_LEADERS: admin.ElectLeadersRequest(
            timeout_ms=5000,
            topic_partitions=[admin.TopicPartitions(topic="none", partitions=[0])],
        ),
    }


@pytest.mark.parametrize("listener", ["broker", "controller"])
@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_every_version_is_answered(nodes: Cluster, listener: str, node_id: int) -> None:
    """By the leader of the quorum and by others, on a connection that stays."""
    node = nodes.node(node_id)
    address = node.address if listener == "broker" else node.controller_address
    hello = cluster.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    with client(address) as connection:
        offered = connection.call(hello).api_keys
    assert ApiKey.DESCRIBE_QUORUM in {one.api_key for one in offered}
    unanswered = []
    for one in offered:
        key = ApiKey(one.api_key)
        declared = spec_of(APIS[key].request).versions
        assert declared is not None
        if key in _NOT_ASKED:
            continue
        with client(address) as connection:
            for version in range(max(one.min_version, declared.first), one.max_version + 1):
                try:
                    connection.call(requests(version).get(key) or _with_defaults(key), version)
                except EOFError:
                    unanswered.append(f"{key.name} {version}")
                    break
    assert unanswered == []


def _with_defaults(key: ApiKey) -> Any:
    """A request of defaults, with values where null may not be sent."""
    request = APIS[key].request()
    for field in spec_of(type(request)).fields:
        if getattr(request, field.name) is None and field.nullable.is_empty:
            setattr(request, field.name, field.kind.zero)
    return request
