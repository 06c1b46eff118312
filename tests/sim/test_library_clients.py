"""The library's clients while brokers die, answers are lost and topics are made again."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftrio.clients.admin.types import NewTopic
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.history import History
from tests.sim.library_clients import (
    GroupProgram,
    Machine,
    ProducerProgram,
    ReaderProgram,
    TopicProgram,
)
from tests.sim.log_contents import content_of, records_of
from tests.sim.stage import Stage, expect, play

PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
IMPATIENT: dict[str, Any] = {"request_timeout_ms": 2_000, "metadata_max_age_ms": 5_000}
TOPIC = "durable"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(2)]


async def trouble(stage: Stage, machines: list[Machine], rounds: int) -> None:
    """Kill brokers, cut the clients' connections, lose answers, let links hang."""
    rng = stage.world.rng("trouble")
    internet = stage.cluster.internet
    for _ in range(rounds):
        await trio.sleep(rng.uniform(0.5, 2.0))
        machine = rng.choice(machines)
        node = stage.node(rng.choice((1, 2, 3)))
        what = rng.choice(("kill", "cut", "lose", "hang"))
        stage.world.note("world", "fault", f"{what} {machine.name} {node.name}")
        if what == "kill":
            node.crash()
            await trio.sleep(rng.uniform(0.1, 4.0))
            node.start()
            await stage.cluster.wait_until(stage.cluster.all_ready, "all brokers are up again")
        elif what == "hang":
            internet.hang(node.name, machine.name)
            await trio.sleep(rng.uniform(0.1, 4.0))
            internet.mend_all()
        else:
            for sock in internet.live_sockets(machine.host.host):
                lose_answers_s = 0.0 if what == "cut" else rng.uniform(0.01, 0.5)
                internet.cut(sock, lose_answers_s=lose_answers_s)


def check_logs(stage: Stage, history: History) -> None:
    """Compare what the leaders hold in the end with what the clients were answered."""
    for tp in PARTITIONS:
        log = stage.log(stage.image(tp).leader, tp)
        assert log is not None
        records = records_of(content_of(log))
        history.check_log(tp, 0, [(each.offset, (each.value or b"").decode()) for each in records])


async def use_a_topic(stage: Stage) -> None:
    """Two producers, a reader and a group of two, on a topic that stays."""
    history = History()
    cluster = stage.cluster
    async with Machine(cluster, "admin").admin() as admin:
        await admin.create_topics([NewTopic(TOPIC, len(PARTITIONS), 3)])
    machines = [Machine(cluster, name) for name in ("p0", "p1", "r0", "m0", "m1")]
    producers = [
        ProducerProgram(machines[0], history, PARTITIONS, linger_ms=0, **IMPATIENT),
        ProducerProgram(
            machines[1], history, PARTITIONS, enable_idempotence=False, linger_ms=20, **IMPATIENT
        ),
    ]
    reader = ReaderProgram(machines[2], history, PARTITIONS, **IMPATIENT)
    timeouts = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, **IMPATIENT}
    members = [
        GroupProgram(machines[3], history, "g", TOPIC, **timeouts),
        GroupProgram(
            machines[4],
            history,
            "g",
            TOPIC,
            partition_assignment_strategy=["cooperative-sticky", "range"],
            **timeouts,
        ),
    ]
    runs = [*(one.run for one in producers), reader.run, *(one.run for one in members)]
    for run in runs:
        stage.start(run)
    await trouble(stage, machines, 12)
    for producer in producers:
        producer.is_stopping = True
    await stage.until(lambda: all(p.is_done for p in producers), "producers end", 150)
    sent = sum(sender.sent for sender in history.senders.values())
    acknowledged = sum(len(sender.acknowledged) for sender in history.senders.values())
    given_up = sum(producer.given_up for producer in producers)
    expect(
        acknowledged + given_up == sent > 100,
        f"{acknowledged} acknowledged and {given_up} given up of {sent}",
    )
    commits = sum(member.commit_count for member in members)
    await stage.until(
        lambda: sum(member.commit_count for member in members) > commits, "a commit", 60
    )
    check_logs(stage, history)
    ends = {tp: stage.high_watermark(stage.image(tp).leader, tp) for tp in PARTITIONS}
    await stage.until(lambda: reader.positions == ends, "everything is read", 60)


@pytest.mark.parametrize("seed", ["1", "3"])
def test_clients_survive_what_clusters_survive(seed: str) -> None:
    """What was acknowledged is there, once and in order; nobody dies or waits for ever."""
    play(use_a_topic, seed=seed, properties=PROPERTIES)


async def use_a_topic_that_comes_and_goes(stage: Stage) -> None:
    """A producer, a reader by hand and a member of a group, while their topic is made again."""
    cluster = stage.cluster
    program = TopicProgram(Machine(cluster, "admin"), "fleeting")
    await program.begin(replication_factor=3)
    machines = [Machine(cluster, name) for name in ("p0", "r0", "m0")]

    async def renew() -> None:
        await program.run(gap_s=3.0)

    async def write() -> None:
        await program.write(machines[0], delivery_timeout_ms=20_000, **IMPATIENT)

    async def read() -> None:
        await program.read(machines[1], **IMPATIENT)

    async def belong() -> None:
        await program.read(machines[2], group="g", **IMPATIENT)

    for work in (renew, write, read, belong):
        stage.start(work)
    await trouble(stage, machines, 6)
    program.is_stopping = True
    try:
        await stage.until(lambda: not program.describe(), "everything is read", 120)
    except SimulationFailure:
        raise SimulationFailure(f"no progress within 120 s: {program.describe()}") from None
    expect(program.lives > 2, f"the topic had {program.lives} lives only")


@pytest.mark.parametrize("seed", ["2", "4"])
def test_clients_follow_a_recreated_topic(seed: str) -> None:
    """Producers and consumers go on with the topic that is there now."""
    play(use_a_topic_that_comes_and_goes, seed=seed, properties=PROPERTIES)
