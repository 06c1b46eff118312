"""Disks that go bad at the worst moment, as scripts: rot under a leader and under a voter, a sync
that fails.

Each is played as it is and with the mutation that it must notice.
"""

from __future__ import annotations

from random import Random

import pytest
import trio

from kraftrio.testing.simulation.damage import is_metadata
from kraftrio.testing.simulation.disk import BROKEN, SimDisk
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import ElectLeadersRequest, TopicPartitions
from kraftrio.wire.primitives import TopicPartition
from tests.sim.mutations import mutated
from tests.sim.quorum_stage import (
    active_controller,
    ask_for_topic,
    expect_topic,
    split,
    wait_active_controller,
)
from tests.sim.stage import Script, Stage, expect, name_of, play, values_of

_VALUES = [f"m{number}" for number in range(20)]


async def rot_under_a_leader(stage: Stage) -> None:
    """A leader's disk goes bad below what a follower lacks: it spreads to nobody, and the partition
    is whole as soon as another in-sync replica leads."""
    tp = await stage.create("t", [1, 2, 3], min_insync_replicas=1)
    client = stage.client("p")
    stage.node(3).crash()
    await stage.until(lambda: stage.image(tp).isr == (1, 2), "broker 3 is fenced")
    expect(await stage.produce(client, 1, tp, *_VALUES) is ErrorCode.NONE, "all is acknowledged")
    disk = stage.node(1).disk
    (path,) = (path for path in disk.tree.files(".log") if "/t-0/" in path)
    expect(disk.rot(path, Random(stage.world.seed)), "something is rotten")
    stage.node(3).start()
    await stage.until(lambda: _follows(stage, 3, tp, 1), "broker 3 follows broker 1")
    await trio.sleep(3)
    expect(stage.end(3, tp) < len(_VALUES), "broker 3 cannot have all")
    expect(3 not in stage.image(tp).isr, "broker 3 is not in sync")
    stage.node(1).crash()
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads")
    await stage.until(lambda: 3 in stage.image(tp).isr, "broker 3 is in sync")
    answer = await stage.fetch(stage.client("c"), 2, tp, 0)
    expect(values_of(answer.records) == _VALUES, "all is there")
    expect(stage.values(3, tp) == _VALUES, "broker 3 has what was written")
    stage.node(1).start()
    await stage.until(lambda: 1 in stage.image(tp).isr, "broker 1 is in sync")
    expect(stage.values(1, tp) == _VALUES, "broker 1 has it from broker 2")
    expect(not stage.node(1).disk.is_rotten(path), "recovery cut what was rotten")


def _follows(stage: Stage, node_id: int, tp: TopicPartition, leader: int) -> bool:
    manager = stage.node(node_id).replica_manager
    partition = None if manager is None else manager.hosted.partition(tp)
    return partition is not None and partition.state.leader_id == leader


async def _demand_topic(stage: Stage, answers: list[ErrorCode]) -> None:
    await wait_active_controller(stage, "a leader in the end")
    await trio.sleep(3)
    leader = active_controller(stage)
    assert leader is not None
    expect_topic(leader, "t", answers)


async def rot_under_a_voter(stage: Stage) -> None:
    """What two voters have promised is rotten with one of them: it does not start, so that the
    third cannot lead with its help."""
    stage.world.tolerated += ["is damaged"]
    leader, follower, _away = await split(stage)
    answers: list[ErrorCode] = []
    await ask_for_topic(stage, "t", answers)
    expect(answers == [ErrorCode.NONE], f"the topic is there: {answers}")
    follower.crash()
    (path,) = (path for path in follower.disk.tree.files(".log") if is_metadata(path))
    expect(follower.disk.rot(path, Random(stage.world.seed)), "something is rotten")
    leader.crash()
    stage.mend()
    follower.start()
    await trio.sleep(5)
    follower.disk.scrub()
    if not follower.is_running:
        expect(active_controller(stage) is None, "nobody leads")
        follower.start()
    await wait_active_controller(stage, "a leader of two")
    leader.start()
    await _demand_topic(stage, answers)


async def failed_sync_of_a_voter(stage: Stage) -> None:
    """A voter's sync fails with a change that only it and the leader have heard of."""
    stage.world.tolerated += ["sync failed"]
    leader, follower, _away = await split(stage)
    disk = follower.disk
    disk.sync_fails = lambda path: is_metadata(path) and path.endswith(".log")
    answers: list[ErrorCode] = []
    stage.start(ask_for_topic, stage, "t", answers)
    await stage.until(lambda: bool(disk.failed_syncs), "a sync that fails")
    await trio.sleep(3)
    leader.crash()
    follower.crash()
    stage.mend()
    follower.start()
    await wait_active_controller(stage, "a leader of two")
    await trio.sleep(2)
    leader.start()
    await _demand_topic(stage, answers)


async def broker_with_another_disk(stage: Stage) -> None:
    """The last member of an ISR comes back without its disk: the others keep what they have, and
    lead with it as soon as that is allowed."""
    stage.world.tolerated += ["the log of t-0 is lost"]
    tp = await stage.create("t", [1, 2, 3], min_insync_replicas=1)
    client = stage.client("p")
    expect(await stage.produce(client, 1, tp, *_VALUES) is ErrorCode.NONE, "all is acknowledged")
    for number in (2, 3):
        stage.node(number).crash()
    await stage.until(lambda: stage.image(tp).isr == (1,), "broker 1 is alone")
    stage.node(1).crash()
    stage.node(1).disk = SimDisk(stage.node(1).clock.wall_ms)
    for number in (1, 2, 3):
        stage.node(number).start()
    await stage.until(stage.cluster.all_ready, "all brokers are up")
    await trio.sleep(20)
    image = stage.image(tp)
    expect((image.leader, image.isr) == (-1, (1,)), f"nobody leads: {image}")
    request = ElectLeadersRequest(
        election_type=1, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
    )
    await stage.client("operator").call_any(request)
    await stage.until(lambda: set(stage.image(tp).isr) == {1, 2, 3}, "all are in sync")
    for number in (1, 2, 3):
        expect(stage.values(number, tp) == _VALUES, f"broker {number} has what was acknowledged")


async def full_disk_under_a_leader(stage: Stage) -> None:
    """Another replica that has room leads, nobody waits for the one without, and once there is room
    again it is as before."""
    stage.world.tolerated += ["disk full"]
    tp = await stage.create("t", [1, 2, 3], min_insync_replicas=2)
    client = stage.client("p")
    expect(await stage.produce(client, 1, tp, "m0") is ErrorCode.NONE, "m0 is acknowledged")
    await stage.until(lambda: stage.end(2, tp) == stage.end(3, tp) == 1, "all have m0")
    disk = stage.node(1).disk
    disk.room_bytes = 500  # for checkpoints, but for no record
    large = "m1".ljust(1000, ".")
    refused = await stage.produce(client, 1, tp, large)
    expect(refused is ErrorCode.KAFKA_STORAGE_ERROR, f"no room: {refused.name}")
    await stage.until(lambda: stage.leads(2, tp), "broker 2 leads", 2)
    elect = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=5_000
    )
    await trio.sleep(5)
    await client.call_node(2, elect)
    started_s = stage.world.now_s
    expect(await stage.produce(client, 2, tp, large) is ErrorCode.NONE, "m1 is acknowledged")
    expect(stage.world.now_s - started_s < 1, "at once")
    expect(1 not in stage.image(tp).isr, "broker 1 is not in sync")
    disk.room_bytes = None
    await stage.until(lambda: 1 in stage.image(tp).isr, "broker 1 is in sync again", 10)
    await client.call_node(2, elect)
    await stage.until(lambda: stage.leads(1, tp), "broker 1 leads again")
    expect(await stage.produce(client, 1, tp, "m2") is ErrorCode.NONE, "m2 is acknowledged")
    await stage.until(
        lambda: all(stage.values(node, tp) == ["m0", large, "m2"] for node in (1, 2, 3)),
        "equal logs",
    )


SCENARIOS: list[tuple[Script, str]] = [
    (broker_with_another_disk, "emptied-broker-makes-its-logs"),
    (rot_under_a_leader, "follower-does-not-check"),
    (rot_under_a_voter, "damaged-metadata-is-cut"),
    (failed_sync_of_a_voter, "failed-sync-is-taken-as-done"),
    (full_disk_under_a_leader, "leader-stays-on-a-full-disk"),
    (full_disk_under_a_leader, "follower-joins-from-a-full-disk"),
]
_SEEDS = range(5)


@pytest.mark.parametrize("script", dict.fromkeys(script for script, _ in SCENARIOS), ids=name_of)
def test_bad_disks_are_survived(script: Script) -> None:
    """It comes out well, whatever was hit."""
    for seed in _SEEDS:
        play(script, seed=str(seed), tail_cache_bytes=0)


@pytest.mark.parametrize(("script", "mutation"), SCENARIOS, ids=name_of)
def test_bad_disks_with_the_mistake_are_not(script: Script, mutation: str) -> None:
    """The mistake is noticed by some seed."""
    with mutated(mutation), pytest.raises(SimulationFailure):
        for seed in _SEEDS:
            play(script, seed=str(seed), tail_cache_bytes=0)


async def _stop_after_a_directory_failed(stage: Stage) -> None:
    """The other directory's logs take part, and are looked at, until the node closes them."""
    stage.world.tolerated.append(BROKEN)
    for number in range(4):
        await stage.create(f"t{number}", [1], min_insync_replicas=1)
    node = stage.node(1)
    manager = node.replica_manager
    assert manager is not None
    logs = [replica.log for replica in manager.hosted.partitions()]
    (lost, *_), (kept, *_) = (
        [log for log in logs if log.directory.startswith(f"{path}/")]
        for path in ("/data2", "/data")
    )
    node.disk.broken_path = "/data2/"
    tp = next(r.topic_partition for r in manager.hosted.partitions() if r.log is lost)
    await stage.produce(stage.client("p"), 1, tp, "m")
    await stage.until(lambda: lost.durability.is_closed, "its directory is given up")
    stage.start(node.stop)
    await stage.until(lambda: node.is_stopping, "it stops")
    expect(node.replica_manager is manager, "it is looked at")
    await stage.until(lambda: kept.durability.is_closed, "it has closed its logs")
    expect(node.replica_manager is None, "there is nothing to look at any more")


def test_a_stopping_node_is_looked_at() -> None:
    """Also one with a failed directory, whose logs were closed before."""
    play(_stop_after_a_directory_failed, properties={"log.dirs": "/data,/data2"})
