"""Elections and ISR changes by the controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftrio.kraft_meta.controller import controller, replication_control
from kraftrio.kraft_meta.metadata.records import LEADER_RECOVERED, LEADER_RECOVERING
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import ElectLeadersRequest, TopicPartitions
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kraftrio.wire.messages.quorum import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from tests.unit.kraft_meta.controller.context import ControllerContext

PREFERRED, UNCLEAN = 0, 1


def cluster(**settings: Any) -> ControllerContext:
    context = ControllerContext(**settings)
    context.start_brokers(1, 2, 3)
    return context


def elect(
    context: ControllerContext, election_type: int, *wanted: tuple[str, list[int]]
) -> list[tuple[str, int, int]]:
    """Return (topic, partition, error code) of each result; nothing wanted means all (null)."""
    response = context.send(
        ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=[TopicPartitions(topic=t, partitions=p) for t, p in wanted] or None,
        ),
        api_version=2,
    )
    assert response.error_code == ErrorCode.NONE
    return [
        (result.topic, partition.partition_id, partition.error_code)
        for result in response.replica_election_results
        for partition in result.partition_result
    ]


# ---- what follows from brokers' fates


def test_the_first_live_replica_of_the_isr_leads_next() -> None:
    """In assignment order, whatever the order of the ISR."""
    context = cluster()
    context.create("t", [1, 3, 2])
    context.alter_isr("t", [2, 3, 1])
    context.fence(1)
    partition = context.partition("t")
    assert (partition.leader, partition.isr) == (3, (2, 3))


def test_a_follower_leaves_the_isr_without_a_new_leader_epoch() -> None:
    """Only the partition epoch moves."""
    context = cluster()
    context.create("t", [1, 2, 3])
    context.fence(2)
    partition = context.partition("t")
    assert (partition.leader, partition.isr) == (1, (1, 3))
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_the_last_of_an_isr_stays_in_it() -> None:
    """Without it there is no leader; when it comes back it leads again, nobody else does."""
    context = cluster()
    context.create("t", [1, 2])
    context.alter_isr("t", [1])
    context.fence(1)
    assert (context.partition("t").leader, context.partition("t").isr) == (-1, (1,))
    context.fence(2)
    context.heartbeat(2)
    assert context.partition("t").leader == -1
    context.heartbeat(1)
    assert (context.partition("t").leader, context.partition("t").isr) == (1, (1,))


def test_unclean_election_follows_the_topics_configuration() -> None:
    """unclean.leader.election.enable=true: any live replica, alone in the ISR and RECOVERING."""
    context = cluster()
    context.create("t", [1, 2], unclean_leader_election_enable="true")
    context.alter_isr("t", [1])
    context.fence(1)
    partition = context.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.leader_recovery_state == LEADER_RECOVERING
    answer = context.alter_isr("t", [2], leader_recovery_state=LEADER_RECOVERED)
    assert answer.error_code == ErrorCode.NONE
    assert context.partition("t").leader_recovery_state == LEADER_RECOVERED


def test_leaders_go_back_to_preferred_replicas_in_time() -> None:
    """leader.imbalance.check.interval.seconds, when the preferred replica is in sync again."""
    context = cluster(leader_imbalance_check_interval_seconds=300, broker_session_timeout_ms=10**9)
    context.create("t", [1, 2])
    context.fence(1)
    context.heartbeat(1)
    assert context.partition("t").leader == 2
    context.sleep(300_000)
    assert context.partition("t").leader == 2
    context.alter_isr("t", [1, 2])
    context.sleep(300_000)
    assert context.partition("t").leader == 1


def test_allowing_unclean_elections_elects_where_there_is_no_leader() -> None:
    """By a topic's configuration or all brokers'; partitions that stay clean have none."""
    for kind, name in ((2, "t"), (4, "")):
        context = cluster()
        context.create("t", [1, 2])
        context.create("u", [1, 2], unclean_leader_election_enable="false")
        for topic in ("t", "u"):
            context.alter_isr(topic, [1])
        context.fence(1)
        assert context.partition("t").leader == -1
        config = IncrementalAlterableConfig(name="unclean.leader.election.enable", value="true")
        resource = IncrementalAlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[config]
        )
        context.send(IncrementalAlterConfigsRequest(resources=[resource]))
        context.sleep(0)
        partition = context.partition("t")
        assert (partition.leader, partition.isr) == (2, (2,))
        assert partition.leader_recovery_state == LEADER_RECOVERING
        assert context.partition("u").leader == -1
        assert context.controller.next_deadline_ms() != context.now_ms


def test_a_new_controller_elects_unclean_leaders_where_allowed() -> None:
    """The former one may not have come to it."""
    context = cluster()
    context.create("t", [1, 2])
    context.alter_isr("t", [1])
    context.fence(1)
    context.config = replace(context.config, unclean_leader_election_enable=True)
    context.fail_over()
    context.sleep(0)
    assert context.partition("t").leader == 2


def test_elections_that_are_due_come_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch after the other, without the time between two checks."""
    for module in (controller, replication_control):
        monkeypatch.setattr(module, "MAX_ELECTIONS_AT_ONCE", 2)
    context = cluster(leader_imbalance_check_interval_seconds=300, broker_session_timeout_ms=10**9)
    context.create("t", *[[1, 2]] * 5)
    context.fence(1)
    context.heartbeat(1)
    for index in range(5):
        context.alter_isr("t", [1, 2], index)
    context.sleep(299_999)
    context.now_ms += 1
    sizes = []
    while (deadline_ms := context.controller.next_deadline_ms()) is not None:
        if deadline_ms > context.now_ms:
            break
        records = context.controller.on_deadline(context.now_ms)
        sizes.append(len(records))
        context.commit(records)
    assert sizes == [2, 2, 1]
    assert {context.partition("t", index).leader for index in range(5)} == {1}


def test_no_leader_goes_back_where_rebalancing_is_off() -> None:
    """auto.leader.rebalance.enable=false."""
    context = cluster(auto_leader_rebalance_enable=False, broker_session_timeout_ms=10**9)
    context.create("t", [1, 2])
    context.fence(1)
    context.heartbeat(1)
    context.alter_isr("t", [1, 2])
    context.sleep(10**7)
    assert context.partition("t").leader == 2


# ---- ElectLeaders


def test_preferred_election() -> None:
    """Named partitions answer each: elected, not needed, not available, unknown."""
    context = cluster()
    context.create("t", [1, 2], [2, 1], [3, 1])
    context.fence(1)
    context.fence(3)
    context.heartbeat(1)
    context.alter_isr("t", [2, 1], index=0)
    results = elect(context, PREFERRED, ("t", [0, 1, 2, 9, 0]), ("x", [0]))
    assert results == [
        ("t", 0, ErrorCode.NONE),
        ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("x", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert context.partition("t", 0).leader == 1
    assert context.partition("t", 2).leader == -1


def test_election_for_all_leaves_out_what_is_fine() -> None:
    """Null partitions: only those whose leader should change are listed."""
    context = cluster()
    context.create("a", [1, 2], [2, 1])
    context.fence(1)
    context.heartbeat(1)
    context.alter_isr("a", [2, 1], index=0)
    assert elect(context, PREFERRED) == [("a", 0, ErrorCode.NONE)]
    assert elect(context, PREFERRED) == []


def test_preferred_election_is_never_unclean() -> None:
    """A preferred replica outside of the ISR does not lead."""
    context = cluster()
    context.create("t", [1, 2], unclean_leader_election_enable="true")
    context.fence(1)
    context.heartbeat(1)
    assert elect(context, PREFERRED, ("t", [0])) == [
        ("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    ]
    assert context.partition("t").leader == 2


def test_unclean_election_by_request() -> None:
    """Needed only without a leader; 83 when no replica lives at all."""
    context = cluster()
    context.create("t", [1, 2], [3, 2])
    context.create("u", [1])
    context.alter_isr("t", [1], index=0)
    context.fence(1)
    assert elect(context, UNCLEAN, ("t", [0, 1]), ("u", [0])) == [
        ("t", 0, ErrorCode.NONE),
        ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
        ("u", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ]
    partition = context.partition("t", 0)
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.leader_recovery_state == LEADER_RECOVERING


def test_an_unknown_election_type_is_refused() -> None:
    """INVALID_REQUEST for the whole request, and for each partition, as older versions read it."""
    context = cluster()
    wanted = [TopicPartitions(topic="t", partitions=[0, 1])]
    request = ElectLeadersRequest(election_type=7, topic_partitions=wanted)
    response = context.send(request, api_version=2)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    (topic,) = response.replica_election_results
    assert [(p.partition_id, p.error_code, p.error_message) for p in topic.partition_result] == [
        (index, ErrorCode.INVALID_REQUEST, "Unknown election type 7") for index in (0, 1)
    ]


def test_an_election_of_all_names_every_topic() -> None:
    """Also a topic whose partitions all have the leader that is wanted, with no partition then."""
    context = cluster()
    context.create("t", [1, 2])
    response = context.send(ElectLeadersRequest(topic_partitions=None), api_version=2)
    assert [(r.topic, r.partition_result) for r in response.replica_election_results] == [("t", [])]


# ---- AlterPartition


def test_a_leader_shrinks_and_expands_its_isr() -> None:
    """Only the partition epoch moves; the answer has the new state."""
    context = cluster()
    context.create("t", [1, 2, 3])
    answer = context.alter_isr("t", [1, 2])
    assert answer.error_code == ErrorCode.NONE
    assert (answer.leader_id, answer.leader_epoch, answer.partition_epoch) == (1, 0, 1)
    assert answer.isr == [1, 2]
    answer = context.alter_isr("t", [1, 2, 3])
    assert answer.partition_epoch == 2
    assert context.partition("t").isr == (1, 2, 3)


def test_an_isr_that_does_not_change_is_not_recorded() -> None:
    """The answer still has the present state."""
    context = cluster()
    context.create("t", [1, 2])
    answer = context.alter_isr("t", [1, 2])
    assert (answer.error_code, answer.partition_epoch) == (ErrorCode.NONE, 0)
    assert context.last_records == []


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ([1], {"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1], {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1], {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1], {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1], {"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ([3], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 3], {}, ErrorCode.INELIGIBLE_REPLICA),
        ([1, 2], {"epochs": {2: 0}}, ErrorCode.INELIGIBLE_REPLICA),
        ([1], {"leader_recovery_state": LEADER_RECOVERING}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_isr_changes(isr: list[int], changes: dict[str, Any], code: ErrorCode) -> None:
    """Epochs, membership and eligibility; here leader_epoch and partition_epoch are 1 or more."""
    context = ControllerContext()
    context.start_brokers(1, 2, 3, 4)
    context.create("t", [2, 1, 3])
    context.fence(2)
    context.fence(3)
    context.heartbeat(2)
    partition = context.partition("t")
    assert (partition.leader, partition.leader_epoch) == (1, 1)
    answer = context.alter_isr("t", isr, **changes)
    assert answer.error_code == code
    assert context.last_records == []


def test_a_leader_that_leaves_its_isr_is_replaced() -> None:
    """The first replica of the rest leads, and the former leader is elected no more meanwhile."""
    context = cluster()
    context.create("t", [1, 2, 3])
    answer = context.alter_isr("t", [2, 3])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = context.partition("t")
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, (2, 3))
    assert elect(context, 0, ("t", [0])) == [("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    context.fence(2)
    context.fence(3)
    assert context.partition("t").leader == -1


@pytest.mark.parametrize("away", [2, 3])
def test_a_leader_leaves_its_isr_only_to_live_members(away: int) -> None:
    context = cluster()
    context.create("t", [1, 2, 3])
    context.fence(away)
    assert context.alter_isr("t", [2, 3]).error_code != ErrorCode.NONE
    assert context.partition("t").leader == 1
    rest = 5 - away
    assert context.alter_isr("t", [rest]).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (context.partition("t").leader, context.partition("t").isr) == (rest, (rest,))


def test_isr_changes_name_known_topics_and_brokers() -> None:
    """Unknown topic ids and partitions, and a stale broker epoch for the whole request."""
    context = cluster()
    topic_id = context.create("t", [1])
    epoch = context.image.brokers[1].broker_epoch

    def ask(topic: bytes, index: int, broker_epoch: int) -> Any:
        data = AlterPartitionRequestPartitionData(partition_index=index)
        topic_data = AlterPartitionRequestTopicData(topic_id=topic, partitions=[data])
        return context.send(
            AlterPartitionRequest(broker_id=1, broker_epoch=broker_epoch, topics=[topic_data])
        )

    def code(response: Any) -> int:
        return int(response.topics[0].partitions[0].error_code)

    assert ask(topic_id, 0, epoch + 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert code(ask(b"x" * 16, 0, epoch)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert code(ask(topic_id, 1, epoch)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_old_requests_name_the_isr_without_epochs() -> None:
    """Version 2 has new_isr."""
    context = cluster()
    topic_id = context.create("t", [1, 2])
    data = AlterPartitionRequestPartitionData(new_isr=[1])
    context.send(
        AlterPartitionRequest(
            broker_id=1,
            broker_epoch=context.image.brokers[1].broker_epoch,
            topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[data])],
        ),
        api_version=2,
    )
    assert context.partition("t").isr == (1,)
