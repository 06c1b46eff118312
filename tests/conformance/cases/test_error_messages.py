"""The words beside error codes, which tools print and people's scripts look for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kraftrio.wire.messages.cluster import DescribeClusterRequest
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from kraftrio.wire.messages.data import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from kraftrio.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    RaftVoterListener,
    RemoveRaftVoterRequest,
)
from tests.conformance.cases.calls import SETTLE_DEADLINE_S, alter_config
from tests.conformance.cases.raw_client import RawClient

NOT_HOSTED = "This server does not host this topic-partition."


def test_topics_that_are_not_there(client: RawClient, unique_topic: Callable[[], str]) -> None:
    """By name and by id."""
    topics = [DeleteTopicState(name=unique_topic()), DeleteTopicState(topic_id=bytes(15) + b"x")]
    answers = client.call(DeleteTopicsRequest(topics=topics, timeout_ms=5000), 6).responses
    assert sorted((int(one.error_code), one.error_message) for one in answers) == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED),
        (ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
    ]


def test_leaders_and_replicas_that_need_no_change(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """An election that is not needed says so; a reassignment that is not there says nothing."""
    topic = new_topic()
    elected = client.call(
        ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=topic, partitions=[0])], timeout_ms=5000
        ),
        2,
    )
    (result,) = elected.replica_election_results
    assert [one.error_message for one in result.partition_result] == [
        "Leader election not needed for topic partition."
    ]
    partition = ReassignablePartition(partition_index=0, replicas=None)
    cancelled = client.call(
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[partition])], timeout_ms=5000
        ),
        1,
    )
    (answer,) = cancelled.responses[0].partitions
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        None,
    )


def test_a_kind_of_resource_that_there_is_not(client: RawClient) -> None:
    """Such a request is called malformed."""
    resource = DescribeConfigsResource(resource_type=3, resource_name="x", configuration_keys=None)
    (found,) = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert found.error_code is ErrorCode.INVALID_REQUEST
    assert found.error_message.startswith("This most likely occurs because of a request being")


def test_new_topics_with_settings_that_are_null(
    client: RawClient, unique_topic: Callable[[], str]
) -> None:
    """All of them are named."""
    configs = [CreatableTopicConfig(name=name, value=None) for name in ("flush.ms", "segment.ms")]
    topic = CreatableTopic(name=unique_topic(), num_partitions=1, replication_factor=1)
    topic.configs = configs
    (answer,) = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: flush.ms,segment.ms",
    )


def test_voters_that_do_not_change(client: RawClient) -> None:
    """They are those of controller.quorum.voters; a broker offers to change them all the same."""
    directory = bytes(15) + b"x"
    endpoints = [RaftVoterListener(name="CONTROLLER", host="localhost", port=1)]
    new = AddRaftVoterRequest(
        cluster_id=None, voter_id=4, voter_directory_id=directory, listeners=endpoints
    )
    for version in (0, 1):
        answer = client.call(new, version)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.UNSUPPORTED_VERSION,
            "Cluster doesn't support adding voter because the kraft.version feature is 0",
        )
    old = RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=directory)
    answer = client.call(old, 0)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "Cluster doesn't support removing voter because the kraft.version feature is 0",
    )
    for cluster_id in ("", "other"):
        answer = client.call(AddRaftVoterRequest(cluster_id=cluster_id), 1)
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert answer.error_message.startswith(f'The given id "{cluster_id}" doesn\'t match the ')
        answer = client.call(RemoveRaftVoterRequest(cluster_id=cluster_id), 0)
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_voters_that_cannot_be(client: RawClient) -> None:
    """They need an id and a directory; new ones an endpoint for the other controllers, too."""
    directory = bytes(15) + b"x"
    other = [RaftVoterListener(name="OTHER", host="localhost", port=1)]
    for voter_id, directory_id, words in (
        (-1, directory, "Add voter request didn't include a valid voter"),
        (4, bytes(16), "Add voter request didn't include a valid voter"),
        (4, directory, "Add voter request didn't include the endpoint"),
    ):
        answer = client.call(
            AddRaftVoterRequest(
                cluster_id=None,
                voter_id=voter_id,
                voter_directory_id=directory_id,
                listeners=other,
            ),
            1,
        )
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message.startswith(words)
    for voter_id, directory_id in ((-1, directory), (1, bytes(16))):
        answer = client.call(
            RemoveRaftVoterRequest(
                cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id
            ),
            0,
        )
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Remove voter request didn't include a valid voter",
        )


def test_producers_of_partitions_that_are_not_there(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str]
) -> None:
    """Topics are explained, partitions are not."""
    there, absent = new_topic(), unique_topic()
    asked = [
        DescribeProducersTopicRequest(name=name, partition_indexes=[9])
        for name in (there, absent, "a/b")
    ]
    answer = client.call(DescribeProducersRequest(topics=asked), 0)
    found = {one.name: one.partitions[0] for one in answer.topics}
    assert [(found[name].error_code, found[name].error_message) for name in (there, absent)] == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED),
    ]
    assert found["a/b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert found["a/b"].error_message.startswith("Topic name is invalid: 'a/b' contains ")


def test_nothing_is_said_of_a_credential(client: RawClient) -> None:
    """The text is empty, not null."""
    credential = ScramCredentialUpsertion(
        name="with-an-empty-text", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
    )

    def describe(wanted: ErrorCode) -> Any:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=credential.name)])
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        while time.monotonic() < deadline:
            (user,) = client.call(request, 0).results
            if user.error_code == wanted:
                return user
        raise AssertionError(f"never {wanted.name}")

    client.call(AlterUserScramCredentialsRequest(upsertions=[credential]), 0)
    try:
        assert describe(ErrorCode.NONE).error_message == ""
    finally:
        gone = ScramCredentialDeletion(name=credential.name, mechanism=1)
        client.call(AlterUserScramCredentialsRequest(deletions=[gone]), 0)
        describe(ErrorCode.RESOURCE_NOT_FOUND)


def test_loggers_are_without_documentation(client: RawClient) -> None:
    """The text is empty whether or not it was asked for."""
    (node,) = client.call(DescribeClusterRequest(), 0).brokers
    logger = DescribeConfigsResource(
        resource_type=8, resource_name=str(node.broker_id), configuration_keys=["root"]
    )
    for documented in (False, True):
        answer = client.call(
            DescribeConfigsRequest(resources=[logger], include_documentation=documented), 4
        )
        (entry,) = answer.results[0].configs
        assert entry.documentation == ""


def test_unknown_settings_are_named_before_wrong_values(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Wherever they stand in the request."""
    unknown = ("no.such.setting", 0, "soon")
    wrong = ("retention.ms", 0, "soon")
    topic = new_topic()
    for changes in ((wrong, unknown), (unknown, wrong)):
        assert alter_config(client, topic, *changes) == (
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: no.such.setting",
        )
    wrong = ("interval.ms", 0, "soon")
    for changes in ((wrong, unknown), (unknown, wrong)):
        assert alter_config(client, "subscription", *changes, kind=16) == (
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics configuration: no.such.setting",
        )
    too_short, no_match = ("interval.ms", 0, "5"), ("match", 0, "none")
    for changes in ((no_match, too_short), (too_short, no_match)):
        assert alter_config(client, "subscription", *changes, kind=16) == (
            ErrorCode.INVALID_REQUEST,
            "Invalid value 5 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        )
