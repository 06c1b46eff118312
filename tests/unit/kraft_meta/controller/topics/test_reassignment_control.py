"""Moving replicas between brokers: start, finish, replace, cancel, list."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from tests.unit.kraft_meta.controller.context import ControllerContext

Wanted = list[int] | None


def cluster(**settings: Any) -> ControllerContext:
    context = ControllerContext(**settings)
    context.start_brokers(1, 2, 3, 4, 5)
    return context


def request(
    wanted: dict[int, Wanted], name: str = "t", *, may_resize: bool = True
) -> AlterPartitionReassignmentsRequest:
    partitions = [
        ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in wanted.items()
    ]
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_resize,
        topics=[ReassignableTopic(name=name, partitions=partitions)],
    )


def results(
    context: ControllerContext, wanted: dict[int, Wanted], name: str = "t", **options: bool
) -> list[ReassignablePartitionResponse]:
    response = context.send(request(wanted, name, **options), api_version=1)
    assert response.error_code == ErrorCode.NONE
    encode(response, 1)
    (topic,) = response.responses
    assert topic.name == name
    partitions: list[ReassignablePartitionResponse] = topic.partitions
    assert [one.partition_index for one in partitions] == list(wanted)
    return partitions


def reassign(context: ControllerContext, replicas: Wanted, index: int = 0) -> None:
    (result,) = results(context, {index: replicas})
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)


def moves(
    context: ControllerContext, index: int = 0
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return replicas, adding and removing replicas."""
    partition = context.partition("t", index)
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def listed(
    context: ControllerContext, topics: dict[str, list[int]] | None = None
) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    wanted = None
    if topics is not None:
        wanted = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    response = context.send(ListPartitionReassignmentsRequest(topics=wanted), api_version=0)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    encode(response, 0)
    return [
        (topic.name, one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in response.topics
        for one in topic.partitions
    ]


# ---- start and finish


def test_new_replicas_join_before_old_ones_leave() -> None:
    """Target first, then what goes; the leader stays and its epoch too."""
    context = cluster()
    context.create("t", [1, 2, 3])
    reassign(context, [4, 2, 5])
    assert moves(context) == ((4, 2, 5, 1, 3), (4, 5), (1, 3))
    partition = context.partition("t")
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2, 3))


def test_it_is_finished_when_all_new_replicas_are_in_sync() -> None:
    """The ISR change that completes it hands over the leadership; the old leader is notified."""
    context = cluster()
    context.create("t", [1, 2, 3])
    reassign(context, [4, 2, 5])
    assert context.alter_isr("t", [1, 2, 3, 4]).error_code == ErrorCode.NONE
    assert moves(context) == ((4, 2, 5, 1, 3), (4, 5), (1, 3))
    answer = context.alter_isr("t", [1, 2, 3, 4, 5])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert moves(context) == ((4, 2, 5), (), ())
    partition = context.partition("t")
    assert (partition.leader, partition.isr) == (4, (2, 4, 5))
    assert partition.leader_epoch == 1
    assert listed(context) == []


def test_a_leader_that_stays_gets_a_new_epoch_at_the_end() -> None:
    """So that fetches of replicas that left are refused (KAFKA's fencing by leader epoch)."""
    context = cluster()
    context.create("t", [1, 2])
    reassign(context, [1, 3])
    answer = context.alter_isr("t", [1, 2, 3])
    assert (answer.error_code, answer.isr, answer.leader_epoch) == (ErrorCode.NONE, [1, 3], 1)
    assert context.partition("t").leader == 1


def test_a_new_order_is_taken_at_once() -> None:
    """There is nothing to wait for; the leader does not move by itself."""
    context = cluster()
    context.create("t", [1, 2, 3])
    reassign(context, [3, 1, 2])
    assert moves(context) == ((3, 1, 2), (), ())
    assert (context.partition("t").leader, context.partition("t").leader_epoch) == (1, 0)


def test_the_same_assignment_changes_nothing() -> None:
    """Success without a record."""
    context = cluster()
    context.create("t", [1, 2, 3])
    reassign(context, [1, 2, 3])
    assert context.last_records == []


def test_fewer_replicas_wait_until_all_that_stay_are_in_sync() -> None:
    """Else a partition could be left with replicas of which most are behind."""
    context = cluster()
    context.create("t", [1, 2, 3])
    context.alter_isr("t", [1, 3])
    reassign(context, [1, 2])
    assert moves(context) == ((1, 2, 3), (), (3,))
    context.alter_isr("t", [1, 2, 3])
    assert moves(context) == ((1, 2), (), ())
    reassign(context, [2])
    assert moves(context) == ((2,), (), ())
    assert (context.partition("t").leader, context.partition("t").isr) == (2, (2,))


def test_a_fenced_broker_may_be_a_target() -> None:
    """It is waited for."""
    context = cluster()
    context.create("t", [1, 2])
    context.fence(4)
    reassign(context, [1, 4])
    assert moves(context) == ((1, 4, 2), (4,), (2,))


def test_a_leaving_leader_that_dies_is_followed_by_another_in_sync() -> None:
    """A reassignment goes on through elections, and finishes with the replicas that are left."""
    context = cluster()
    context.create("t", [1, 2])
    reassign(context, [3, 2])
    context.alter_isr("t", [1, 2, 3])
    assert moves(context) == ((3, 2), (), ())
    reassign(context, [4, 5])
    context.fence(3)
    partition = context.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert moves(context) == ((4, 5, 2, 3), (4, 5), (2, 3))
    context.alter_isr("t", [2, 4, 5])
    assert moves(context) == ((4, 5), (), ())


# ---- replace and cancel


def test_a_second_reassignment_replaces_the_first() -> None:
    """What is no longer wanted goes; what is wanted still counts as added."""
    context = cluster()
    context.create("t", [1, 2, 3])
    reassign(context, [4, 2, 3])
    reassign(context, [4, 5, 3])
    assert moves(context) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    reassign(context, None)
    assert moves(context) == ((3, 1, 2), (), ())


def test_going_back_to_the_original_replicas_ends_it() -> None:
    """A target without the replicas being added is as good as a cancellation."""
    context = cluster()
    context.create("t", [1, 2, 3])
    reassign(context, [4, 2, 3])
    reassign(context, [1, 2, 3])
    assert moves(context) == ((1, 2, 3), (), ())


def test_a_cancellation_takes_out_what_was_added() -> None:
    """The original replicas stay, in the order of the target; added ones leave the ISR."""
    context = cluster()
    context.create("t", [1, 2, 3])
    reassign(context, [4, 5, 1])
    context.alter_isr("t", [1, 2, 3, 4])
    reassign(context, None)
    partition = context.partition("t")
    assert moves(context) == ((1, 2, 3), (), ())
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((1, 2, 3), 1, 1)


def test_a_cancellation_that_would_lose_records_needs_unclean_elections() -> None:
    """When only replicas being added are in sync."""
    for allowed in ("false", "true"):
        context = cluster()
        context.create("t", [1, 2], unclean_leader_election_enable=allowed)
        reassign(context, [3, 4])
        context.alter_isr("t", [1, 3])
        context.fence(1)
        assert context.partition("t").isr == (3,)
        (result,) = results(context, {0: None})
        if allowed == "false":
            assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert "unclean leader election" in (result.error_message or "")
            assert moves(context)[1] == (3, 4)
        else:
            assert result.error_code == ErrorCode.NONE
            assert moves(context) == ((1, 2), (), ())


# ---- refusals


@pytest.mark.parametrize(
    ("name", "index", "replicas", "code", "text"),
    [
        ("x", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named x."),
        ("t", 7, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:7."),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ""),
        ("t", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
        ("t", 0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 1 more than once"),
        ("t", 0, [1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 9, but no such"),
    ],
)
def test_refused_reassignments(
    name: str, index: int, replicas: Wanted, code: ErrorCode, text: str
) -> None:
    """In Kafka's words, and nothing is recorded."""
    context = cluster()
    context.create("t", [1, 2])
    (result,) = results(context, {index: replicas}, name)
    assert result.error_code == code
    assert text in (result.error_message or "")
    assert context.last_records == []


def test_one_partition_fails_alone() -> None:
    """The others of the request are moved."""
    context = cluster()
    context.create("t", [1, 2], [1, 2])
    codes = [one.error_code for one in results(context, {0: [1, 9], 1: [3, 4]})]
    assert codes == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NONE]
    assert moves(context, 1) == ((3, 4, 1, 2), (3, 4), (1, 2))


def test_the_replication_factor_may_be_kept() -> None:
    """allow_replication_factor_change=false (KIP-860) compares with the assignment to be."""
    context = cluster()
    context.create("t", [1, 2, 3])
    (result,) = results(context, {0: [1, 2]}, may_resize=False)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message == "The replication factor is changed from 3 to 2"
    (result,) = results(context, {0: [4, 5, 3]}, may_resize=False)
    assert result.error_code == ErrorCode.NONE
    (result,) = results(context, {0: [1, 2, 3, 4, 5]}, may_resize=False)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    (result,) = results(context, {0: [1, 5, 3]}, may_resize=False)
    assert result.error_code == ErrorCode.NONE


def test_a_refusal_of_the_whole_request_is_in_every_item() -> None:
    """Clients of the admin API look at the top, others at the items."""
    response = error_response(request({0: [1]}), ErrorCode.NOT_CONTROLLER)
    encode(response, 1)
    assert response.error_code == ErrorCode.NOT_CONTROLLER
    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_CONTROLLER
    listing = error_response(ListPartitionReassignmentsRequest(), ErrorCode.NOT_CONTROLLER)
    encode(listing, 0)
    assert listing.error_code == ErrorCode.NOT_CONTROLLER


# ---- listing


def test_what_is_under_way_is_listed() -> None:
    """All, or what is asked for; nothing is said of the rest."""
    context = cluster()
    context.create("t", [1, 2], [1, 2])
    context.create("a", [1, 2])
    assert listed(context) == []
    reassign(context, [1, 3], index=1)
    (result,) = results(context, {0: [4, 2]}, "a")
    assert result.error_code == ErrorCode.NONE
    of_t = ("t", 1, [1, 3, 2], [3], [2])
    assert listed(context) == [("a", 0, [4, 2, 1], [4], [1]), of_t]
    assert listed(context, {"t": [0, 1, 1, 9], "x": [0]}) == [of_t]
    assert listed(context, {"t": [0]}) == []
    context.fail_over()
    assert listed(context, {"t": [1]}) == [of_t]
