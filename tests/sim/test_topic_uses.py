"""What is demanded of topics that lose records: the models notice what must not be lost."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.history import History, Promise
from tests.sim.offsets_watcher import OffsetsWatcher
from tests.sim.topic_uses import TABLE, TopicUses, table_record

TP = TopicPartition(TABLE, 0)


def uses_after(sent: int, acknowledged: int) -> TopicUses:
    """So many records were sent to the table, so many acknowledged."""
    history = History()
    sender = history.sender("u", TP, Promise(True, True))
    sender.sent = sent
    history.acknowledge(sender, 0, acknowledged, 0)
    return TopicUses(history, [TABLE], cast(Any, None), cast(Any, None))


def test_the_newest_value_of_each_key_is_enough() -> None:
    """Older ones may be gone or there; a tombstone may be there or gone with what it deleted."""
    uses = uses_after(12, 12)
    log = [table_record("u", number) for number in range(12)]
    uses.check_table(TP, "here", log)
    newest = {key: (key, value) for key, value in log}  # 6 is the tombstone of key 2, 10 after it
    uses.check_table(TP, "here", list(newest.values()))


@pytest.mark.parametrize("lost", [8, 9, 10, 11])
def test_a_lost_newest_value_is_noticed(lost: int) -> None:
    uses = uses_after(12, 12)
    log = [table_record("u", number) for number in range(12) if number != lost]
    with pytest.raises(SimulationFailure, match=f"{lost} was acknowledged"):
        uses.check_table(TP, "here", log)


def test_a_value_behind_its_tombstone_is_noticed() -> None:
    """Compaction must not drop a tombstone before what it deletes."""
    uses = uses_after(7, 7)
    log = [table_record("u", number) for number in range(7)]
    uses.check_table(TP, "here", log)
    uses.check_table(TP, "here", [entry for entry in log if entry[0] != b"u#2"])
    with pytest.raises(SimulationFailure, match="6 was acknowledged"):
        uses.check_table(TP, "here", log[:6])


def test_values_out_of_order_are_noticed() -> None:
    uses = uses_after(8, 8)
    log = [table_record("u", number) for number in (4, 0, 1, 2, 3, 5)]
    with pytest.raises(SimulationFailure, match="u/0 after 4"):
        uses.check_table(TP, "here", log)


class Answers:
    """A client whose questions about offsets are answered as a test says."""

    def __init__(self) -> None:
        self.world = cast(Any, type("world", (), {"now_s": 100.0}))
        self.rng = cast(
            Any, type("rng", (), {"randrange": lambda _, limit: self.time_ms % limit})
        )()
        self.time_ms: int = 0


@pytest.mark.parametrize(
    ("answers", "is_right"),
    [
        ([(10, 0), (20, 5), (15, 3)], True),
        ([(10, 0), (20, 5), (15, 7)], False),  # later than what is later
        ([(20, 5), (30, 4)], False),
        ([(20, 5), (10, -1)], False),  # nothing is so new, but something newer is there
        ([(10, -1), (10, 4)], True),  # it came meanwhile
    ],
)
def test_times_lie_in_order(
    answers: list[tuple[int, int]], is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is compared with all before it."""
    client = Answers()
    watcher = OffsetsWatcher(cast(Any, client), [TP], "trimmed")

    async def ask_all() -> None:
        for time_ms, offset in answers:
            client.time_ms = time_ms

            async def ask(*_: object, found: int = offset) -> tuple[object, int]:
                return cast(Any, type("answer", (), {"offset": found})), 0

            monkeypatch.setattr(watcher, "ask", ask)
            await watcher._ask_time(TP)

    if is_right:
        trio.run(ask_all)
        return
    with pytest.raises(SimulationFailure, match="lies at"):
        trio.run(ask_all)


def test_times_are_compared_with_the_final_log() -> None:
    watcher = OffsetsWatcher(cast(Any, Answers()), [TP], "trimmed")
    watcher._by_time[TP] = {15: 1}
    watcher.check_log(TP, [(0, 10), (1, 20)])
    with pytest.raises(SimulationFailure, match="lies at 2"):
        watcher.check_log(TP, [(0, 10), (2, 20)])
