"""Offsets within transactions: pending until the marker, and whose commits are taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import SETTLE_DEADLINE_S, delete_topic, wait_for_coordinator
from tests.conformance.cases.members import (
    Member,
    alone,
    commit_code,
    commit_request,
    fetch_offset,
    wait_for_heartbeat,
)
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import TransactionalProducer, repeated, wait_for_state

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
OLD_GENERATION = ErrorCode.ILLEGAL_GENERATION
UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID

NewProducer = Callable[..., TransactionalProducer]
NewTopic = Callable[..., str]
Names = Callable[[], str]

both_versions = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def bootstrap(transaction_broker: Broker) -> str:
    """The broker whose coordinator looks for what timed out every 200 ms."""
    return transaction_broker.address


@pytest.fixture(scope="module", autouse=True)
def coordinator(transaction_broker: Broker) -> None:
    """Have the offsets topic before the first commit."""
    with RawClient(transaction_broker.address) as client:
        wait_for_coordinator(client)


@pytest.fixture
def new_producer(client: RawClient, unique_name: Callable[[str], str]) -> NewProducer:
    """Make producers with an id of their own: new_producer(version=1)."""

    def made(version: int = 2, timeout_ms: int = 60_000) -> TransactionalProducer:
        return TransactionalProducer(client, unique_name("id"), version, timeout_ms).init()

    return made


def same(code: ErrorCode) -> ErrorCode:
    return code


def stable_offset(client: RawClient, group: str, topic: str, version: int) -> tuple[int, int]:
    """Ask for an offset that no transaction may change any more; return code and offset."""
    if version < 8:
        asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=True)
        found = client.call(request, version)
    else:
        named = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=group, topics=named)]
        request = OffsetFetchRequest(groups=groups, require_stable=True)
        (found,) = client.call(request, version).groups
    assert found.error_code == NONE
    ((answer,),) = [one.partitions for one in found.topics]
    return answer.error_code, answer.committed_offset


def wait_for_offset(client: RawClient, group: str, topic: str, offset: int) -> None:
    """Wait until this is the stable offset."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while (found := stable_offset(client, group, topic, 9)) != (NONE, offset):
        assert found[0] in (NONE, UNSTABLE)
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


# Pending until the marker: G12


@both_versions
def test_commit_publishes_and_abort_drops(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names, version: int
) -> None:
    """A fetch that does not require stable offsets returns what was committed last."""
    producer, topic, group = new_producer(version=version), new_topic(), unique_group()
    client, before = producer.client, -1
    for offset, commit in ((5, False), (6, True), (7, False), (8, True)):
        producer.write(topic, b"v")
        assert producer.commit_offset(group, topic, offset) == NONE
        for request_version in (7, 8, 9):
            assert stable_offset(client, group, topic, request_version) == (UNSTABLE, -1)
        assert fetch_offset(client, group, topic).committed_offset == before
        producer.end(commit=commit)
        before = offset if commit else before
        wait_for_offset(client, group, topic, before)
        assert fetch_offset(client, group, topic).committed_offset == before


@both_versions
def test_a_timeout_drops_pending_offsets(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names, version: int
) -> None:
    """No group is held up by a producer that died."""
    producer, topic, group = (
        new_producer(version=version, timeout_ms=300),
        new_topic(),
        unique_group(),
    )
    assert producer.commit_offset(group, topic, 5) == NONE
    wait_for_offset(producer.client, group, topic, -1)
    wait_for_state(producer.client, producer.transactional_id, "CompleteAbort")
    again = producer.twin().init()
    assert again.commit_offset(group, topic, 6) == NONE
    again.end(commit=True)
    wait_for_offset(producer.client, group, topic, 6)


def test_a_plain_commit_beside_a_pending_one(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names
) -> None:
    """Is there at once; the one that was made later in the log wins."""
    producer, topic, group = new_producer(), new_topic(), unique_group()
    client = producer.client
    for commit, expected in ((True, 9), (False, 9)):
        assert producer.commit_offset(group, topic, 5) == NONE
        assert commit_code(client, commit_request(group, topic, 9)) == NONE
        assert fetch_offset(client, group, topic).committed_offset == 9
        assert stable_offset(client, group, topic, 9)[0] == UNSTABLE
        producer.end(commit=commit)
        wait_for_offset(client, group, topic, expected)


def test_two_transactions_for_one_group(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names
) -> None:
    """An offset stays unstable until the last of them has ended."""
    one, two, topic, group = new_producer(), new_producer(), new_topic(), unique_group()
    assert one.commit_offset(group, topic, 5) == NONE
    assert two.commit_offset(group, topic, 6) == NONE
    one.end(commit=True)
    wait_for_state(one.client, one.transactional_id, "CompleteCommit")
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while fetch_offset(one.client, group, topic).committed_offset != 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert stable_offset(one.client, group, topic, 9)[0] == UNSTABLE
    two.end(commit=False)
    wait_for_offset(one.client, group, topic, 5)


def test_the_offset_of_a_topic_that_went(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names
) -> None:
    """The offset of an unknown topic is refused, another one in the same request is not."""
    producer, topic, gone, group = new_producer(), new_topic(), new_topic(), unique_group()
    delete_topic(producer.client, gone)
    request = producer.offsets_request(group, topic, 5)
    request.topics += producer.offsets_request(group, gone, 6).topics
    answer = repeated(
        lambda: producer.client.call(request, 5).topics,
        lambda topics: ErrorCode(topics[0].partitions[0].error_code),
    )
    codes = {one.name: one.partitions[0].error_code for one in answer}
    assert codes == {topic: NONE, gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    producer.end(commit=True)
    wait_for_offset(producer.client, group, topic, 5)


@pytest.mark.parametrize("what", ["offset", "group"])
def test_what_is_deleted_does_not_come_back(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names, what: str
) -> None:
    """Deleting an offset, or its group, drops the pending one, too."""
    producer, topic, group = new_producer(), new_topic(), unique_group()
    client = producer.client
    assert commit_code(client, commit_request(group, topic, 3)) == NONE
    assert producer.commit_offset(group, topic, 5) == NONE
    if what == "offset":
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        response = client.call(OffsetDeleteRequest(group_id=group, topics=topics))
        assert response.error_code == NONE
        assert response.topics[0].partitions[0].error_code == NONE
    else:
        (deleted,) = client.call(DeleteGroupsRequest(groups_names=[group])).results
        assert deleted.error_code == NONE
    assert stable_offset(client, group, topic, 9) == (NONE, -1)
    producer.end(commit=True)
    wait_for_state(client, producer.transactional_id, "CompleteCommit")
    assert stable_offset(client, group, topic, 9) == (NONE, -1)


# Whose commits are taken: G11


@both_versions
def test_the_generation_of_the_member(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names, version: int
) -> None:
    """A zombie is refused by its member id or generation, and nothing is pending."""
    producer, topic, group = new_producer(version=version), new_topic(), unique_group()
    member = alone(producer.client, group)
    wrong = [
        (member.generation - 1, member.member_id, OLD_GENERATION),
        (member.generation + 1, member.member_id, OLD_GENERATION),
        (member.generation, "who", UNKNOWN_MEMBER),
        (-1, "who", UNKNOWN_MEMBER),
    ]
    for generation, member_id, code in wrong:
        found = producer.commit_offset(
            group, topic, 5, generation_id=generation, member_id=member_id
        )
        assert found == code, (generation, member_id)
    assert stable_offset(producer.client, group, topic, 9) == (NONE, -1)
    right = {"generation_id": member.generation, "member_id": member.member_id}
    assert producer.commit_offset(group, topic, 5, **right) == NONE
    producer.end(commit=True)
    wait_for_offset(producer.client, group, topic, 5)


def test_the_instance_of_the_member(
    connect: Callable[[], RawClient],
    new_topic: NewTopic,
    new_producer: NewProducer,
    unique_group: Names,
) -> None:
    """A static member that was replaced is fenced."""
    producer, topic, group = new_producer(), new_topic(), unique_group()
    first = alone(connect(), group, instance="i")
    second = Member(connect(), group, instance="i")
    second.join()
    second.sync({second.member_id: b"all of it"})
    assert second.member_id != first.member_id
    for member, code in ((first, ErrorCode.FENCED_INSTANCE_ID), (second, NONE)):
        found = producer.commit_offset(
            group,
            topic,
            5,
            generation_id=second.generation,
            member_id=member.member_id,
            group_instance_id="i",
        )
        assert found == code
    producer.end(commit=False)


def test_while_the_group_rebalances(
    connect: Callable[[], RawClient],
    new_topic: NewTopic,
    new_producer: NewProducer,
    unique_group: Names,
) -> None:
    """Members of the generation that ends commit what they have done."""
    producer, topic, group = new_producer(), new_topic(), unique_group()
    first, second = alone(connect(), group), Member(connect(), group)
    second.get_member_id()
    second.begin_join()
    wait_for_heartbeat(first, ErrorCode.REBALANCE_IN_PROGRESS)
    mine = {"generation_id": first.generation, "member_id": first.member_id}
    assert producer.commit_offset(group, topic, 5, **mine) == NONE
    first.begin_join()
    first.end_join()
    second.end_join()
    assert producer.commit_offset(group, topic, 6, **mine) == OLD_GENERATION
    producer.end(commit=True)
    wait_for_offset(producer.client, group, topic, 5)


def test_a_group_that_is_not_there(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names
) -> None:
    """A generation is one that has ended; without it, offsets are kept as in any other group."""
    producer, topic, group = new_producer(version=1), new_topic(), unique_group()
    code = repeated(lambda: producer.try_add_offsets(group), same)
    assert code == NONE, "no group is needed for that"
    absent = {"generation_id": 3, "member_id": "who"}
    for request_version in (3, 4, 5):
        request = producer.offsets_request(group, topic, 5, **absent)  # type: ignore[arg-type]
        code = repeated(partial(producer.try_commit_offset, request, request_version), same)
        assert code == OLD_GENERATION, request_version
    for request_version in range(5):
        request = producer.offsets_request(group, topic, request_version)
        assert producer.try_commit_offset(request, request_version) == NONE
    producer.end(commit=True)
    wait_for_offset(producer.client, group, topic, 4)


OTHERS = [
    # version of TxnOffsetCommit, transaction.version, code without AddOffsetsToTxn before
    (2, 1, ErrorCode.INVALID_TXN_STATE),
    (3, 1, ErrorCode.INVALID_TXN_STATE),
    (4, 1, ErrorCode.TRANSACTION_ABORTABLE),
    (5, 2, NONE),
]


@pytest.mark.parametrize(("request_version", "version", "code"), OTHERS)
def test_a_group_that_was_not_added(
    new_topic: NewTopic,
    new_producer: NewProducer,
    unique_group: Names,
    request_version: int,
    version: int,
    code: ErrorCode,
) -> None:
    """From version 5 on the commit adds it; before, nothing is taken."""
    producer, topic, group = new_producer(version=version), new_topic(), unique_group()
    request = producer.offsets_request(group, topic, 5)
    found = repeated(lambda: producer.try_commit_offset(request, request_version), same)
    assert found == code
    if code != NONE:
        assert stable_offset(producer.client, group, topic, 9) == (NONE, -1)


@both_versions
def test_a_fenced_producer_commits_no_offsets(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Names, version: int
) -> None:
    """The coordinator of the group knows its epoch as old, and so does that of transactions."""
    producer, topic, group = new_producer(version=version), new_topic(), unique_group()
    assert producer.commit_offset(group, topic, 5) == NONE
    zombie = producer.twin()
    producer.init()
    wait_for_offset(producer.client, group, topic, -1)
    request = zombie.offsets_request(group, topic, 6)
    found = zombie.try_commit_offset(request, 5 if version == 2 else 4)
    assert found in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED), found
    wait_for_offset(producer.client, group, topic, -1)
