"""What the controller listener serves: brokers' requests, forwarded ones, controllers described."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.controller import ControllerHandlers
from kraftrio.broker.controller.local_controller import LocalController
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.kraft_meta.controller.control import registered_features
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.image import BROKER, BROKER_LOGGER, TOPIC
from kraftrio.kraft_meta.quorum.active_controller import NEVER_DECIDED
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity
from kraftrio.kraft_meta.raft.voters import Voter, VoterEndpoint, VoterSet
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    ElectLeadersRequest,
    TopicPartitions,
)
from kraftrio.wire.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftrio.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kraftrio.wire.messages.quorum import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Listener,
    UnregisterBrokerRequest,
)
from kraftrio.wire.protocol.api import APIS, ApiKey
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import CLUSTER_ID, ClusterContext, context
from tests.unit.broker.controller.controller_fakes import FakeQuorum

VOTERS = VoterSet(
    (
        Voter(2, (VoterEndpoint("CONTROLLER", "c2", 9093),)),
        Voter(1, (VoterEndpoint("CONTROLLER", "c1", 9093), VoterEndpoint("SECRET", "s1", 9094))),
        Voter(3, (VoterEndpoint("CONTROLLER", "c3", 9093),)),
    )
)


class ControllerNode(FakeQuorum):
    """A controller node whose quorum is the real controller core, while `leader_id` is 1."""

    def __init__(self) -> None:
        super().__init__(node_id=1, voters=VOTERS)
        self.cluster = ClusterContext(brokers={1: True, 2: True})
        self.leader_id = 1
        self.heartbeats: list[tuple[int, int, ClientInfo]] = []
        self.handlers = ControllerHandlers(
            LocalController(self),
            self,
            self.cluster.configs,
            self.cluster.timers,
            identity=ClusterIdentity(CLUSTER_ID, "a test"),
            heartbeat_seen=lambda *seen: self.heartbeats.append(seen),
        )

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        if self.leader_id != 1:
            return Deferred.completed(NEVER_DECIDED)
        return self.cluster.submit(request, api_version=api_version)

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        if self.leader_id != 1:
            return Deferred.completed(NEVER_DECIDED)
        return self.cluster.submit_for(sender, request, api_version=api_version)

    def call(self, key: ApiKey, request: Any, version: int, listener: str = "CONTROLLER") -> Any:
        """Serve a request; its response can be encoded in that version."""
        response = self.handlers.table()[key](request, context(version, listener))
        if isinstance(response, GeneratorType):
            response = finish(response)
        if isinstance(response, Deferred):
            response = response.value
        encode(response, version)
        return response


def test_only_apis_of_the_controller_listener_are_served() -> None:
    """Kafka's definitions say which those are, and ApiVersions lists them."""
    table = ControllerNode().handlers.table()
    assert all("controller" in APIS[key].listeners for key in table)
    advertised = {one.api_key for one in Dispatcher(table).advertised()}
    assert advertised == {int(key) for key in table}


def test_brokers_are_registered_and_send_heartbeats() -> None:
    """A heartbeat is reported with its connection to the watcher of connections."""
    node = ControllerNode()
    registration = BrokerRegistrationRequest(
        broker_id=7,
        cluster_id=CLUSTER_ID,
        incarnation_id=b"i" * 16,
        listeners=[Listener(name="PLAINTEXT", host="h", port=1)],
        features=registered_features(),
    )
    epoch = node.call(ApiKey.BROKER_REGISTRATION, registration, 4).broker_epoch
    beat = BrokerHeartbeatRequest(broker_id=7, broker_epoch=epoch, current_metadata_offset=epoch)
    assert not node.call(ApiKey.BROKER_HEARTBEAT, beat, 1).is_fenced
    ((broker_id, broker_epoch, client),) = node.heartbeats
    assert (broker_id, broker_epoch, client.listener_name) == (7, epoch, "CONTROLLER")
    block = AllocateProducerIdsRequest(broker_id=7, broker_epoch=epoch)
    assert node.call(ApiKey.ALLOCATE_PRODUCER_IDS, block, 0).producer_id_len == 1000
    gone = node.call(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=7), 0)
    assert gone.error_code == ErrorCode.NONE
    assert node.cluster.metadata.image.broker(7) is None


def test_a_slow_decision_is_not_waited_for_longer_than_asked() -> None:
    """REQUEST_TIMED_OUT at timeout_ms, as on a broker."""
    node = ControllerNode()
    node.cluster.hold()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    handler = node.handlers.table()[ApiKey.CREATE_TOPICS]
    answer = finish(handler(CreateTopicsRequest(topics=[topic], timeout_ms=100), context(7)))
    assert not answer.done
    node.cluster.timers.fire()
    assert answer.value.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_another_node_is_the_active_controller() -> None:
    """A client gets NOT_CONTROLLER, and finds the active one by DescribeCluster."""
    node = ControllerNode()
    node.leader_id = 3
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)
    refused = node.call(ApiKey.BROKER_HEARTBEAT, beat, 1)
    assert refused.error_code == ErrorCode.NOT_CONTROLLER
    wanted = [TopicPartitions(topic="t", partitions=[0])]
    election = ElectLeadersRequest(topic_partitions=wanted, timeout_ms=9)
    assert node.call(ApiKey.ELECT_LEADERS, election, 2).error_code == ErrorCode.NOT_CONTROLLER
    old = node.call(ApiKey.ELECT_LEADERS, election, 0)
    result = old.replica_election_results[0].partition_result[0]
    assert (old.error_code, result.error_code) == (0, ErrorCode.NOT_CONTROLLER)


# ---- DescribeCluster


def describe(
    node: ControllerNode, endpoint_type: int = 2, version: int = 2, listener: str = "CONTROLLER"
) -> DescribeClusterResponse:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    response = node.call(ApiKey.DESCRIBE_CLUSTER, request, version, listener)
    assert isinstance(response, DescribeClusterResponse)
    return response


def test_controllers_are_described() -> None:
    """All voters with their listener of that name, and which one is active."""
    node = ControllerNode()
    response = describe(node)
    assert (response.endpoint_type, response.cluster_id) == (2, CLUSTER_ID)
    assert response.controller_id == 1
    nodes = [(one.broker_id, one.host, one.port) for one in response.brokers]
    assert nodes == [(1, "c1", 9093), (2, "c2", 9093), (3, "c3", 9093)]
    assert response.cluster_authorized_operations == -(2**31)


def test_an_active_controller_that_is_not_listed_is_not_named() -> None:
    """None is known, or it has no listener of that name."""
    node = ControllerNode()
    node.leader_id = -1
    assert describe(node).controller_id == -1
    node.leader_id = 3
    assert describe(node).controller_id == 3
    secret = describe(node, listener="SECRET")
    assert ([one.host for one in secret.brokers], secret.controller_id) == (["s1"], -1)


@pytest.mark.parametrize(
    ("endpoint_type", "version", "code"),
    [
        (1, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, 0, ErrorCode.INVALID_REQUEST),
        (9, 1, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_brokers_are_not_described_here(endpoint_type: int, version: int, code: ErrorCode) -> None:
    """A client that took this for a broker gets an error (KIP-919)."""
    response = describe(ControllerNode(), endpoint_type, version)
    assert (response.error_code, response.brokers) == (code, [])
    if code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
        assert response.error_message == (
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of "
            "type BROKER"
        )


# ---- configurations


def change(kind: int, name: str, key: str, value: str) -> IncrementalAlterConfigsResource:
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[IncrementalAlterableConfig(name=key, value=value)],
    )


def test_configurations_are_changed_by_the_controller_and_loggers_here() -> None:
    """Any broker's configuration may be changed: the throttles of a reassignment, say."""
    node = ControllerNode()
    node.cluster.create_topic("t")
    key = "leader.replication.throttled.rate"
    request = IncrementalAlterConfigsRequest(
        resources=[
            change(BROKER_LOGGER, "1", "kraftrio.raft", "DEBUG"),
            change(BROKER, "2", key, "1000"),
            change(TOPIC, "t", "leader.replication.throttled.replicas", "0:1,0:2"),
            change(TOPIC, "x", "retention.ms", "1"),
        ]
    )
    response = node.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1)
    assert [(one.resource_type, one.error_code) for one in response.responses] == [
        (BROKER, ErrorCode.NONE),
        (TOPIC, ErrorCode.NONE),
        (TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER_LOGGER, ErrorCode.NONE),
    ]
    assert node.cluster.metadata.image.config(BROKER, "2")[key] == "1000"
    assert node.cluster.loggers.levels()["kraftrio.raft"] == "DEBUG"


def test_loggers_alone_need_no_controller() -> None:
    """They are this node's."""
    node = ControllerNode()
    node.leader_id = 3
    request = IncrementalAlterConfigsRequest(
        resources=[change(BROKER_LOGGER, "1", "kraftrio.raft", "DEBUG")]
    )
    response = node.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1)
    assert [one.error_code for one in response.responses] == [ErrorCode.NONE]


def test_configurations_are_described() -> None:
    """From this node's view: its own and the cluster's."""
    node = ControllerNode()
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=BROKER, resource_name="1", configuration_keys=["node.id"]
            )
        ]
    )
    response = node.call(ApiKey.DESCRIBE_CONFIGS, request, 4)
    assert [entry.value for entry in response.results[0].configs] == ["1"]
