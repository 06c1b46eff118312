"""Metadata: brokers, topics, and topics created on first use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.image import TOPIC
from kraftrio.kraft_meta.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kraftrio.wire.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.support.authorizers import Allow
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import CLUSTER_ID, ClusterContext, context


def metadata(
    cluster: ClusterContext,
    *names: str,
    version: int = 12,
    every: bool = False,
    allow: bool = False,
    listener: str = "PLAINTEXT",
) -> MetadataResponse:
    """Ask for topics by name, or for all of them; the answer went over the wire."""
    request = MetadataRequest(
        topics=None if every else [MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=allow,
    )
    response = finish(cluster.topics.metadata(request, context(version, listener)))
    return decode(MetadataResponse, version, encode(response, version))[0]


def codes(response: MetadataResponse) -> list[tuple[str | None, int]]:
    """Topics and their errors."""
    return [(topic.name, topic.error_code) for topic in response.topics]


def test_topics_that_a_client_has_made_count_for_it() -> None:
    """Each request names the client that wants them, also where it wants many."""
    cluster = ClusterContext()
    metadata(cluster, "a", allow=True)
    metadata(cluster, *(f"many-{number}" for number in range(30)), allow=True)
    metadata(cluster, "b")
    assert cluster.senders == [RequestSender("ANONYMOUS", "client", "127.0.0.1")] * 2


def test_brokers_and_controller_are_live_ones() -> None:
    """Fenced brokers are not shown, and the controller is a broker that is shown."""
    cluster = ClusterContext(brokers={1: False, 2: True, 3: True})
    response = metadata(cluster)
    assert [(one.node_id, one.host, one.port, one.rack) for one in response.brokers] == [
        (2, "b2", 9092, "r"),
        (3, "b3", 9092, "r"),
    ]
    assert response.controller_id == 2
    assert response.cluster_id == CLUSTER_ID
    assert metadata(ClusterContext(brokers={1: True, 0: True})).controller_id == 1
    assert metadata(ClusterContext(brokers={1: False})).controller_id == -1


@pytest.mark.parametrize(
    ("version", "every", "found"),
    [(0, False, 2), (1, False, 0), (1, True, 2), (9, False, 0), (12, True, 2), (13, True, 2)],
)
def test_all_topics_or_none(version: int, every: bool, found: int) -> None:
    """Version 0 asks for all by an empty list, later ones by null."""
    cluster = ClusterContext()
    cluster.create_topic("b")
    cluster.create_topic("a")
    response = metadata(cluster, version=version, every=every)
    assert [topic.name for topic in response.topics] == ["a", "b"][:found]


def test_partitions_are_described() -> None:
    """Leader, epoch, replicas and ISR come from the image."""
    cluster = ClusterContext(brokers={1: True, 2: True})
    topic_id = cluster.create_topic("t", partitions=2, replicas=2)
    (topic,) = metadata(cluster, "t").topics
    assert (topic.topic_id, topic.is_internal) == (topic_id, False)
    assert [one.partition_index for one in topic.partitions] == [0, 1]
    for one in topic.partitions:
        assert one.error_code == 0
        assert one.leader_id == one.replica_nodes[0]
        assert sorted(one.replica_nodes) == sorted(one.isr_nodes) == [1, 2]
        assert one.offline_replicas == []


def test_missing_and_illegal_names() -> None:
    """Names are answered in order, once each, with Kafka's codes, and nothing is created."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    response = metadata(cluster, "t", "missing", "a b", "", "t")
    assert codes(response) == [("t", 0), ("missing", 3), ("a b", 17), ("", 17)]
    assert cluster.submitted == []


def test_missing_topic_is_created_when_allowed() -> None:
    """The first answer is 3, the topic is there for the next one, illegal names never are."""
    cluster = ClusterContext({"num.partitions": "2"})
    assert codes(metadata(cluster, "new", "a b", allow=True)) == [("new", 3), ("a b", 17)]
    (topic,) = metadata(cluster, "new").topics
    assert len(topic.partitions) == 2
    assert cluster.metadata.topic("a b") is None


def test_old_clients_always_allow_creation() -> None:
    """Before version 4 a client could not say no."""
    cluster = ClusterContext()
    metadata(cluster, "new", version=3)
    assert cluster.metadata.topic("new") is not None


def test_broker_may_forbid_creation() -> None:
    """auto.create.topics.enable=false wins over the client."""
    cluster = ClusterContext({"auto.create.topics.enable": "false"})
    assert codes(metadata(cluster, "new", allow=True)) == [("new", 3)]
    assert cluster.submitted == []


def test_topic_is_created_once_however_often_asked() -> None:
    """While a creation is under way nobody starts another."""
    cluster = ClusterContext()
    cluster.hold()
    for _ in range(3):
        metadata(cluster, "new", allow=True)
    assert len(cluster.submitted) == 1
    cluster.settle()
    assert codes(metadata(cluster, "new")) == [("new", 0)]


def test_lookup_by_id() -> None:
    """From version 12 topics are found by id; unknown ids are echoed without a name."""
    cluster = ClusterContext()
    topic_id = cluster.create_topic("t")
    unknown = b"\xee" * 16
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=topic_id, name=None),
            MetadataRequestTopic(topic_id=unknown, name=None),
            MetadataRequestTopic(name="beside"),
        ]
    )
    response = finish(cluster.topics.metadata(request, context(12)))
    assert [(one.name, one.topic_id, one.error_code) for one in response.topics] == [
        ("t", topic_id, 0),
        (None, unknown, 100),
    ]


@pytest.mark.parametrize(
    ("version", "topic"),
    [
        (10, MetadataRequestTopic(topic_id=b"\x01" * 16, name="t")),
        (11, MetadataRequestTopic(name=None)),
        (12, MetadataRequestTopic(name=None)),
    ],
)
def test_ids_and_null_names_where_they_make_no_sense(
    version: int, topic: MetadataRequestTopic
) -> None:
    """Such a request is refused for all its topics."""
    cluster = ClusterContext()
    request = MetadataRequest(topics=[topic, MetadataRequestTopic(name="u")])
    response = finish(cluster.topics.metadata(request, context(version)))
    encode(response, version)
    assert [one.error_code for one in response.topics] == [42, 42]
    assert (response.brokers, response.controller_id) == ([], -1)


def test_authorized_operations_only_when_asked() -> None:
    """The bit fields are absent by default, and Kafka's for everything allowed when asked."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    plain = metadata(cluster, "t", version=8)
    assert plain.topics[0].topic_authorized_operations == NO_AUTHORIZED_OPERATIONS
    assert plain.cluster_authorized_operations == NO_AUTHORIZED_OPERATIONS
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    asked = finish(cluster.topics.metadata(request, context(8)))
    assert asked.topics[0].topic_authorized_operations == 3576
    assert asked.cluster_authorized_operations == 8096


def test_authorized_operations_are_what_the_authorizer_says() -> None:
    """Of each topic its own; of the cluster none to whom it may not be described."""
    cluster = ClusterContext()
    for name in ("mine", "other"):
        cluster.create_topic(name)
    mine, other = (Resource(ResourceType.TOPIC, name) for name in ("mine", "other"))
    visible = {(AclOperation.DESCRIBE, mine), (AclOperation.DESCRIBE, other)}
    authorizer = Allow({(AclOperation.READ, mine), (AclOperation.ALTER, CLUSTER), *visible})

    def operations(topics: list[MetadataRequestTopic] | None) -> dict[str | None, int]:
        request = MetadataRequest(
            topics=topics,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        response = finish(
            cluster.topics.metadata(request, replace(context(8), authorizer=authorizer))
        )
        assert response.cluster_authorized_operations == 0
        return {one.name: one.topic_authorized_operations for one in response.topics}

    describe = 1 << AclOperation.DESCRIBE
    expected = {"mine": 1 << AclOperation.READ | describe, "other": describe}
    assert operations(None) == expected
    assert operations([MetadataRequestTopic(name=name) for name in expected]) == expected
    authorizer.allowed.add((AclOperation.READ, Resource(ResourceType.TOPIC, "other")))
    assert operations(None)["other"] == 1 << AclOperation.READ | describe


def _put_topic(cluster: ClusterContext, replicas: tuple[int, ...], leader: int) -> bytes:
    topic_id = b"\xaa" * 16
    cluster.apply(
        [
            TopicRecord("t", topic_id),
            PartitionRecord(
                topic_id=topic_id,
                partition_id=0,
                replicas=replicas,
                isr=replicas,
                leader=leader,
                leader_epoch=4,
                partition_epoch=4,
            ),
        ]
    )
    return topic_id


def test_partition_without_a_leader() -> None:
    """No leader, or a fenced one, is LEADER_NOT_AVAILABLE; fenced replicas are offline."""
    cluster = ClusterContext(brokers={1: True, 2: False})
    topic_id = _put_topic(cluster, (2, 1), 2)
    (one,) = metadata(cluster, "t").topics[0].partitions
    assert (one.error_code, one.leader_id, one.leader_epoch) == (5, -1, 4)
    assert one.offline_replicas == [2]
    cluster.apply([PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=NO_LEADER)])
    (one,) = metadata(cluster, "t").topics[0].partitions
    assert (one.error_code, one.leader_id, one.leader_epoch) == (5, -1, 5)


def test_version_0_shows_live_replicas_only() -> None:
    """The first version marks a partition with missing replicas."""
    cluster = ClusterContext(brokers={1: True, 2: False})
    _put_topic(cluster, (1, 2), 1)
    (one,) = metadata(cluster, "t", version=0).topics[0].partitions
    assert one.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (one.leader_id, one.replica_nodes, one.isr_nodes) == (1, [1], [1])


@pytest.mark.parametrize(("version", "code"), [(5, 5), (6, 72), (12, 72)])
def test_listener_that_a_leader_lacks(version: int, code: int) -> None:
    """Clients get endpoints of their own listener; a leader without it cannot be reached."""
    cluster = ClusterContext(brokers={1: True})
    cluster.register(1, listeners=("PLAINTEXT", "OUTSIDE"))
    cluster.register(2)
    _put_topic(cluster, (2,), 2)
    response = metadata(cluster, "t", version=version, listener="OUTSIDE")
    assert [one.node_id for one in response.brokers] == [1]
    (one,) = response.topics[0].partitions
    assert (one.error_code, one.leader_id) == (code, -1)


def test_a_replica_in_a_failed_log_directory_is_offline() -> None:
    """Until its broker has that directory again; the same broker's other replicas are not."""
    cluster = ClusterContext(brokers={1: True, 2: True})
    topic_id, directories = b"\xaa" * 16, (b"a" * 16, b"b" * 16)
    cluster.apply([TopicRecord("t", topic_id)])
    for index, directory in enumerate(directories):
        cluster.apply(
            [PartitionRecord(topic_id, index, (1, 2), (2,), 2, directories=(directory, bytes(16)))]
        )

    def offline(log_dirs: tuple[bytes, ...]) -> list[list[int]]:
        cluster.apply([BrokerRegistrationChangeRecord(1, 1, log_dirs=log_dirs)])
        return [one.offline_replicas for one in metadata(cluster, "t").topics[0].partitions]

    assert offline(directories) == [[], []]
    assert offline(directories[1:]) == [[1], []]
    assert offline(directories) == [[], []]


def test_a_replica_without_the_clients_listener_is_offline() -> None:
    """For clients of that listener; version 0 leaves it out."""
    cluster = ClusterContext(brokers={1: True})
    cluster.register(1, listeners=("PLAINTEXT", "OUTSIDE"))
    cluster.register(2)
    _put_topic(cluster, (1, 2, 3), 1)
    (one,) = metadata(cluster, "t", listener="OUTSIDE").topics[0].partitions
    assert (one.error_code, one.replica_nodes, one.offline_replicas) == (0, [1, 2, 3], [2, 3])
    (one,) = metadata(cluster, "t").topics[0].partitions
    assert one.offline_replicas == [3]
    (one,) = metadata(cluster, "t", version=0, listener="OUTSIDE").topics[0].partitions
    assert one.replica_nodes == [1]


def test_descriptions_follow_the_image() -> None:
    """They are kept while nothing in them changes: topic, partition, or a broker's fate."""
    cluster = ClusterContext(brokers={1: True, 2: True})
    topic_id = _put_topic(cluster, (1, 2), 1)
    cluster.create_topic("u")

    def every() -> list[MetadataResponseTopic]:
        return finish(cluster.topics.metadata(MetadataRequest(topics=None), context(12))).topics

    first = every()
    assert every() is first
    assert [topic.name for topic in first] == ["t", "u"]

    def seen() -> tuple[int, list[int]]:
        (named,) = metadata(cluster, "t").topics
        assert every()[0] == named
        return named.partitions[0].leader_id, named.partitions[0].offline_replicas

    assert seen() == (1, [])
    cluster.apply([PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=2)])
    assert seen() == (2, [])
    assert every()[1] is first[1]
    cluster.register(1, fenced=True)
    assert seen() == (2, [1])
    cluster.apply([RemoveTopicRecord(topic_id)])
    assert [topic.name for topic in every()] == ["u"]


def test_racks_are_returned() -> None:
    """To clients that read from near replicas."""
    (broker,) = metadata(ClusterContext(brokers={1: True})).brokers
    assert broker.rack == "r"


def test_internal_topics_are_marked_and_made_for_their_use() -> None:
    """The internal topics get their own settings, and no more replicas than brokers."""
    cluster = ClusterContext(brokers={1: True, 2: True})
    done: list[tuple[str, ErrorCode]] = []
    cluster.auto_topics.create(
        [CONSUMER_OFFSETS, TRANSACTION_STATE], lambda name, code: done.append((name, code))
    )
    assert done == [(CONSUMER_OFFSETS, ErrorCode.NONE), (TRANSACTION_STATE, ErrorCode.NONE)]
    (offsets, transactions) = metadata(cluster, CONSUMER_OFFSETS, TRANSACTION_STATE).topics
    for topic in (offsets, transactions):
        assert topic.is_internal
        assert len(topic.partitions) == 50
        assert len(topic.partitions[0].replica_nodes) == 2
    image = cluster.metadata.image
    assert dict(image.config(TOPIC, CONSUMER_OFFSETS)) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert image.config(TOPIC, TRANSACTION_STATE)["min.insync.replicas"] == "2"


def test_single_node_needs_no_settings_for_internal_topics() -> None:
    """One broker gets one replica and one in-sync replica."""
    cluster = ClusterContext()
    cluster.auto_topics.create([TRANSACTION_STATE])
    assert cluster.metadata.image.config(TOPIC, TRANSACTION_STATE)["min.insync.replicas"] == "1"


def test_a_broker_alone_waits_for_others() -> None:
    """With controllers of their own nobody knows how many brokers come: the setting counts."""
    cluster = ClusterContext(
        {
            "process.roles": "broker",
            "controller.quorum.voters": "9@c:9093",
            "controller.listener.names": "CONTROLLER",
        }
    )
    done: list[tuple[str, ErrorCode]] = []
    names = (CONSUMER_OFFSETS, TRANSACTION_STATE)
    cluster.auto_topics.create(names, lambda name, code: done.append((name, code)))
    assert done == [(name, ErrorCode.INVALID_REPLICATION_FACTOR) for name in names]
    cluster.register(2, fenced=False)
    cluster.register(3, fenced=False)
    cluster.auto_topics.create(names)
    for name in names:
        topic = cluster.metadata.topic(name)
        assert topic is not None
        assert {len(one.replicas) for one in topic.partitions.values()} == {3}


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({}, (-1, -1)),
        ({"num.partitions": "4"}, (4, -1)),
        ({"default.replication.factor": "1"}, (-1, 1)),
    ],
)
def test_automatic_topics_take_the_controllers_defaults(
    settings: dict[str, str], asked: tuple[int, int]
) -> None:
    """Unless this broker sets its own, be they the same as the defaults."""
    cluster = ClusterContext(settings)
    cluster.auto_topics.create(["t"])
    (topic,) = cluster.submitted[-1].topics
    assert (topic.num_partitions, topic.replication_factor) == asked
    assert cluster.metadata.topic("t") is not None


def test_replication_factor_that_was_set_is_kept() -> None:
    """An operator who sets the factor gets it, or the error."""
    cluster = ClusterContext({"offsets.topic.replication.factor": "3"})
    done: list[ErrorCode] = []
    cluster.auto_topics.create([CONSUMER_OFFSETS], lambda _name, code: done.append(code))
    assert done == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert cluster.metadata.topic(CONSUMER_OFFSETS) is None
