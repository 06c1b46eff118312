"""What leader epochs are for: the incidents of KIP-101, KIP-279 and KIP-320, as scripts.

Each scenario is played twice: as it is, when it must come out well, and with a mutation that takes
away what protects from it, when it must not. A scenario that passes without the protection would
prove nothing.
"""

from __future__ import annotations

from typing import cast

import pytest
import trio

from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import ElectLeadersRequest, TopicPartitions
from kraftrio.wire.messages.data import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraftrio.wire.primitives import TopicPartition
from tests.sim.mutations import mutated
from tests.sim.stage import Script, Stage, expect, play, values_of


async def _same_logs(stage: Stage, tp: TopicPartition, expected: list[str]) -> None:
    def all_equal() -> bool:
        return all(stage.values(node, tp) == expected for node in stage.image(tp).replicas)

    try:
        await stage.until(all_equal, "equal logs", 30)
    except SimulationFailure:
        found = {node: stage.values(node, tp) for node in stage.image(tp).replicas}
        raise SimulationFailure(f"not all replicas hold {expected}: {found}") from None


async def kip_101_loss(stage: Stage) -> None:
    """A follower that has a committed record, but not the news, leads after two failovers."""
    tp = await stage.create("t", [1, 2, 3], min_insync_replicas=1)
    client = stage.client("p")
    expect(await stage.produce(client, 1, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    answers: list[ErrorCode] = []

    async def produce_m1() -> None:
        answers.append(await stage.produce(client, 1, tp, "m1"))

    stage.start(produce_m1)
    # Both followers get m1, but not the news that it is committed.
    await stage.until(lambda: stage.end(2, tp) == stage.end(3, tp) == 2, "followers have m1")
    stage.hang([1], [2, 3])
    await stage.until(lambda: answers == [ErrorCode.NONE], "m1 is acknowledged")
    expect(stage.high_watermark(3, tp) < 2, "broker 3 does not know that m1 is committed")
    stage.node(1).crash()
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads")
    stage.hang([2], [3])
    await stage.until(lambda: stage.image(tp).isr == (2, 3), "broker 1 is fenced")
    await stage.until(lambda: _follows(stage, 3, tp, 2), "broker 3 follows broker 2")
    stage.node(2).crash()
    await stage.until(lambda: stage.leads(3, tp), "broker 3 leads")
    stage.mend()
    await stage.until(lambda: stage.high_watermark(3, tp) >= 2, "m1 is committed", 20)
    answer = await stage.fetch(stage.client("c"), 3, tp, 0, stage.image(tp).leader_epoch)
    expect(values_of(answer.records) == ["m0", "m1"], f"m1 is lost: {values_of(answer.records)}")


def _follows(stage: Stage, node_id: int, tp: TopicPartition, leader: int) -> bool:
    manager = stage.node(node_id).replica_manager
    partition = None if manager is None else manager.hosted.partition(tp)
    return partition is not None and partition.state.leader_id == leader


async def kip_101_divergence(stage: Stage) -> None:
    """A former leader comes back with committed records that an unclean election has dropped."""
    tp = await stage.create("t", [1, 2], unclean_leader_election_enable=True)
    client = stage.client("p")
    expect(await stage.produce(client, 1, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    stage.node(2).crash()
    await stage.until(lambda: stage.image(tp).isr == (1,), "broker 2 is fenced")
    expect(await stage.produce(client, 1, tp, "a1", "a2") is ErrorCode.NONE, "a2 is acknowledged")
    stage.node(1).crash()
    await stage.until(lambda: stage.image(tp).leader == -1, "nobody leads")
    stage.node(2).start()
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads, uncleanly")
    expect(await stage.produce(client, 2, tp, "b1", "b2", "b3") is ErrorCode.NONE, "b3 is there")
    stage.node(1).start()
    await stage.until(lambda: set(stage.image(tp).isr) == {1, 2}, "broker 1 is in sync")
    await _same_logs(stage, tp, ["m0", "b1", "b2", "b3"])


async def kip_279_fast_leader_changes(stage: Stage) -> None:
    """Two leaders in a row die with records that nobody else has, the second in its own epoch."""
    tp = await stage.create("t", [1, 2, 3], min_insync_replicas=1)
    client = stage.client("p")
    expect(await stage.produce(client, 1, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    await stage.until(lambda: stage.high_watermark(3, tp) == 1, "m0 is committed everywhere")
    stage.cut_off(1)
    await stage.produce(client, 1, tp, "x1", "x2", acks=1)
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads")
    stage.cut_off(2)
    await stage.produce(client, 2, tp, "y1", acks=1)
    await stage.until(lambda: stage.leads(3, tp), "broker 3 leads")
    expect(await stage.produce(client, 3, tp, "z1", "z2", "z3") is ErrorCode.NONE, "z3 is there")
    expect(stage.values(1, tp) == ["m0", "x1", "x2"], "broker 1 has records of its own")
    expect(stage.values(2, tp) == ["m0", "y1"], "broker 2 has a record of its own")
    stage.mend()
    await stage.until(lambda: set(stage.image(tp).isr) == {1, 2, 3}, "all are in sync")
    await _same_logs(stage, tp, ["m0", "z1", "z2", "z3"])


async def kip_320_stale_consumer(stage: Stage) -> None:
    """A consumer that knows the new leader epoch is not served by the leader before."""
    tp = await stage.create("t", [1, 2, 3], min_insync_replicas=1)
    client, consumer = stage.client("p"), stage.client("c")
    expect(await stage.produce(client, 1, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    old_epoch = stage.image(tp).leader_epoch
    stage.cut_off(1)
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads")
    new_epoch = stage.image(tp).leader_epoch
    await stage.until(
        lambda: stage.image(tp).isr == (2, 3) and stage.high_watermark(2, tp) == 1, "2 and 3 serve"
    )
    expect(await stage.produce(client, 2, tp, "m1", "m2") is ErrorCode.NONE, "m2 is acknowledged")
    answer = await stage.fetch(consumer, 1, tp, 3, new_epoch)
    expect(
        answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"the leader before answers {ErrorCode(answer.error_code).name}",
    )
    answer = await stage.fetch(consumer, 2, tp, 1, old_epoch)
    expect(
        answer.error_code == ErrorCode.FENCED_LEADER_EPOCH,
        f"who knows the old epoch is answered {ErrorCode(answer.error_code).name}",
    )
    answer = await stage.fetch(consumer, 2, tp, 1, new_epoch)
    expect(values_of(answer.records) == ["m1", "m2"], "who knows the new epoch reads")


async def kip_320_truncation_is_noticed(stage: Stage) -> None:
    """A consumer learns where the log that it read parts from the one that is there now."""
    tp = await stage.create("t", [1, 2], unclean_leader_election_enable=True)
    client = stage.client("p")
    expect(await stage.produce(client, 1, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    read_epoch = stage.image(tp).leader_epoch
    stage.node(2).crash()
    await stage.until(lambda: stage.image(tp).isr == (1,), "broker 2 is fenced")
    expect(await stage.produce(client, 1, tp, "a1", "a2") is ErrorCode.NONE, "a2 is acknowledged")
    stage.node(1).crash()
    await stage.until(lambda: stage.image(tp).leader == -1, "nobody leads")
    stage.node(2).start()
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads, uncleanly")
    expect(await stage.produce(client, 2, tp, "b1", "b2", "b3") is ErrorCode.NONE, "b3 is there")
    partition = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=stage.image(tp).leader_epoch, leader_epoch=read_epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])]
    )
    response = await client.call_node(2, request)
    answer = response.topics[0].partitions[0]
    expect(answer.error_code == ErrorCode.NONE, f"answered {answer}")
    expect(answer.end_offset == 1, f"what was read of epoch {read_epoch} ends at {answer}")


async def kip_320_stale_follower(stage: Stage) -> None:
    """A follower with an old leader epoch gets nothing, though that leader leads once more."""
    tp = await stage.create("t", [1, 2, 3], min_insync_replicas=1)
    client = stage.client("p")
    expect(await stage.produce(client, 1, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    await stage.until(lambda: stage.end(3, tp) == 1, "broker 3 has m0")
    # Broker 3 reaches the controllers no more, but the other brokers.
    stage.hang([101, 102, 103], [3])
    stage.node(1).crash()
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads")
    expect(await stage.produce(client, 2, tp, "m1") is ErrorCode.NONE, "m1 is acknowledged")
    stage.node(1).start()
    await stage.until(lambda: 1 in stage.image(tp).isr, "broker 1 is in sync")
    elect = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=5_000
    )
    await client.call_node(2, elect)
    await stage.until(lambda: stage.leads(1, tp), "broker 1 leads again")
    await trio.sleep(3)
    expect(_follows(stage, 3, tp, 1), "broker 3 follows broker 1, as it did before")
    expect(stage.end(3, tp) == 1, f"broker 3 was given {stage.values(3, tp)} in an old epoch")
    stage.mend()
    await stage.until(lambda: set(stage.image(tp).isr) == {1, 2, 3}, "all are in sync")
    await _same_logs(stage, tp, ["m0", "m1"])


async def leader_changes_unseen(stage: Stage) -> None:
    """A leader learns at once that another one led and that it leads again (no KIP).

    A follower had its record, and cut it for the leader in between.
    """
    tp = await stage.create("t", [2, 1, 3], min_insync_replicas=2)
    client = stage.client("p")
    expect(await stage.produce(client, 2, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    stage.node(2).crash()
    await stage.until(lambda: stage.leads(1, tp), "broker 1 leads")
    stage.node(2).start()
    await stage.until(lambda: set(stage.image(tp).isr) == {1, 2, 3}, "all are in sync")
    await stage.until(
        lambda: stage.high_watermark(2, tp) == stage.high_watermark(3, tp) == 1, "m0 is committed"
    )
    # Broker 2 stays in the ISR for now, but gets nothing more.
    stage.hang([1], [2])
    answers: list[ErrorCode] = []

    async def produce_m1() -> None:
        answers.append(await stage.produce(client, 1, tp, "m1"))

    stage.start(produce_m1)
    await stage.until(lambda: stage.end(3, tp) == 2, "broker 3 has m1")
    await trio.sleep(0.05)  # and has said so
    stage.hang([101, 102, 103], [1])
    elect = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=5_000
    )
    await stage.client("admin").call_node(2, elect)
    await stage.until(lambda: stage.end(3, tp) == 1, "broker 3 follows broker 2, and cuts m1")
    stage.node(2).crash()
    await stage.until(lambda: stage.image(tp).leader == 1, "broker 1 is to lead again")
    for controller in (101, 102, 103):
        stage.cluster.internet.mend(f"n{controller}", "n1")
    epoch = stage.image(tp).leader_epoch
    partition = cast(ReplicaManager, stage.node(1).replica_manager).hosted.partition(tp)
    assert partition is not None
    await stage.until(lambda: partition.state.leader_epoch >= epoch, "broker 1 hears of it")
    expect(stage.end(3, tp) == 2 or stage.high_watermark(1, tp) == 1, "m1 counts too early")
    stage.mend()
    stage.node(2).start()
    await stage.until(lambda: set(stage.image(tp).isr) == {1, 2, 3}, "all are in sync")
    await stage.until(lambda: answers == [ErrorCode.NONE], "m1 is acknowledged")
    await _same_logs(stage, tp, ["m0", "m1"])


# Scenario, the mutation that it must notice, and whether records may legally be lost in it.
SCENARIOS: list[tuple[Script, str, bool]] = [
    (kip_101_loss, "truncation-by-high-watermark", False),
    (kip_101_divergence, "no-check-of-the-last-epoch", True),
    (kip_279_fast_leader_changes, "no-check-of-the-last-epoch", False),
    (kip_320_stale_consumer, "no-fencing-of-old-leader-epochs", False),
    (kip_320_truncation_is_noticed, "epochs-are-not-kept", True),
    (kip_320_stale_follower, "no-fencing-of-old-leader-epochs", False),
    (leader_changes_unseen, "progress-of-another-leader-epoch", False),
]
NAMES = [script.__name__ for script, _, _ in SCENARIOS]


@pytest.mark.parametrize(("script", "mutation", "may_lose"), SCENARIOS, ids=NAMES)
def test_leader_epochs_protect(script: Script, mutation: str, may_lose: bool) -> None:
    """The incident comes out well."""
    play(script, may_lose=may_lose)


@pytest.mark.parametrize(("script", "mutation", "may_lose"), SCENARIOS, ids=NAMES)
def test_without_leader_epochs_it_fails(script: Script, mutation: str, may_lose: bool) -> None:
    """Without what protects from the incident, the scenario notices."""
    with mutated(mutation), pytest.raises(SimulationFailure):
        play(script, may_lose=may_lose)
