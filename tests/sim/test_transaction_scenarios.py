"""Scripts about transactions: what random faults meet rarely, or what is to be seen step by step.

Each is played as it is, and with the breach that it is about, which it has to notice.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.client import SimClient, Unavailable
from tests.sim.mutations import mutated
from tests.sim.stage import Script, Stage, expect, name_of, play
from tests.sim.transaction_model import TransactionHistory
from tests.sim.transactional_client import (
    TRANSACTION,
    Contest,
    Fenced,
    MustAbort,
    SessionOptions,
    TransactionalSession,
)

_PROPERTIES = {
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


async def _coordinated_elsewhere(client: SimClient, leader: int) -> tuple[str, int]:
    """A transactional id whose coordinator is not the broker that leads the data."""
    while True:
        for number in range(20):
            try:
                coordinator = await client.coordinator(f"id{number}", TRANSACTION)
            except Unavailable as error:
                client.note(f"no coordinator yet: {error}")
                break
            if coordinator != leader:
                return f"id{number}", coordinator
        await client.pause()


async def _begin(
    stage: Stage, replicas: list[int], *, is_new: bool
) -> tuple[TransactionalSession, TopicPartition, int]:
    """A producer that has begun, the partition that it writes to, and its coordinator."""
    tp = await stage.create("t", replicas)
    client = stage.client("w")
    transactional_id, coordinator = await _coordinated_elsewhere(client, 1)
    options = SessionOptions(is_new=is_new, timeout_ms=5_000, patience_s=20.0)
    session = TransactionalSession(client, TransactionHistory(), Contest(transactional_id), options)
    await session.begin()
    await client.leader(*tp)
    return session, tp, coordinator


def _is_stable(stage: Stage, tp: TopicPartition, replicas: Sequence[int] = (1, 2)) -> bool:
    logs = [stage.log(node_id, tp) for node_id in replicas]
    return all(
        log is not None
        and log.last_stable_offset == log.high_watermark == log.log_end_offset
        and log.log_end_offset > 0
        for log in logs
    )


async def _late_write(stage: Stage, *, is_new: bool) -> None:
    """A write that the network held back comes after its transaction was aborted (KIP-890)."""
    session, tp, _ = await _begin(stage, [1, 2], is_new=is_new)
    first = session.transaction()
    await session.write(first, [(tp, None)])
    await session.end(first, commit=True)
    await stage.until(lambda: _is_stable(stage, tp), "the first one is committed")
    attempt = session.transaction()
    stage.cluster.internet.hang("w", "n1")
    with trio.move_on_after(0.05):
        await session.write(attempt, [(tp, None)])
    await session.end(attempt, commit=False)
    await stage.until(lambda: _is_stable(stage, tp), "the transaction is aborted")
    await trio.sleep(0.5)  # nor is a marker still to come
    end = stage.end(1, tp)
    stage.cluster.internet.mend("w", "n1")
    await trio.sleep(2.0)
    expect(_is_stable(stage, tp), f"{tp} is not stable after the late write")
    expect(stage.end(1, tp) == end, f"{tp} went on to {stage.end(1, tp)} after the abort at {end}")


async def late_write_of_an_old_client(stage: Stage) -> None:
    """The coordinator is asked before it is appended, and does not know of it."""
    await _late_write(stage, is_new=False)


async def late_write_of_a_new_client(stage: Stage) -> None:
    """Its epoch is over."""
    await _late_write(stage, is_new=True)


async def decided_transaction_of_a_dead_coordinator(stage: Stage) -> None:
    """A commit was answered; before its marker can be written the coordinator dies."""
    session, tp, coordinator = await _begin(stage, [1], is_new=True)
    attempt = session.transaction()
    await session.write(attempt, [(tp, None)])
    stage.node(1).crash()
    await session.end(attempt, commit=True)
    stage.node(coordinator).crash()
    await trio.sleep(1.0)
    stage.node(1).start()
    await stage.until(lambda: _is_stable(stage, tp, [1]), "another one writes the marker")
    expect(stage.end(1, tp) == 2, "the record and one marker are there")


async def time_out_of_a_silent_producer(stage: Stage) -> None:
    """The coordinator aborts what took too long; the producer is told so when it comes back."""
    session, tp, _ = await _begin(stage, [1, 2], is_new=False)
    attempt = session.transaction()
    await session.write(attempt, [(tp, None)])
    begin_s = stage.world.now_s
    await stage.until(lambda: _is_stable(stage, tp), "the transaction is aborted", 7.0)
    expect(stage.world.now_s - begin_s > 4.0, "it was aborted before its time-out")
    try:
        await session.write(attempt, [(tp, None)])
        await session.end(attempt, commit=True)
    except (Fenced, MustAbort):
        pass
    else:
        expect(False, "a transaction that timed out was committed")
    expect(_is_stable(stage, tp), f"{tp} is not stable after the late write")


@pytest.mark.parametrize(
    "script",
    [
        late_write_of_an_old_client,
        late_write_of_a_new_client,
        decided_transaction_of_a_dead_coordinator,
        time_out_of_a_silent_producer,
    ],
    ids=name_of,
)
def test_what_transactions_promise(script: Script) -> None:
    play(script, properties=_PROPERTIES)


@pytest.mark.parametrize(
    ("script", "mutation"),
    [
        (late_write_of_an_old_client, "verification-is-skipped"),
        (late_write_of_a_new_client, "no-fencing-by-producer-epoch"),
        (decided_transaction_of_a_dead_coordinator, "decided-transactions-are-not-taken-over"),
    ],
    ids=name_of,
)
def test_breaches_are_noticed(script: Script, mutation: str) -> None:
    with mutated(mutation), pytest.raises(SimulationFailure):
        play(script, properties=_PROPERTIES)
