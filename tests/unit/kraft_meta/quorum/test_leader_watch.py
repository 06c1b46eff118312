"""Who leads the quorum is logged once, and that nobody does when it lasts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftrio.kraft_meta.quorum.leader_watch import LeaderWatch


def core(leader_id: int, epoch: int) -> Any:
    """A Raft core, as far as the watch looks at it."""
    memory, log = SimpleNamespace(is_proven=True), SimpleNamespace(has_nothing=False)
    found = SimpleNamespace(
        leader_id=leader_id, epoch=epoch, memory=memory, log=log, missing_votes=()
    )
    return cast(Any, found)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    caplog.clear()
    return lines


def test_an_election_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    watch = LeaderWatch()
    for now_ms, leader_id, epoch in ((0, -1, 0), (5_000, -1, 3), (5_100, 2, 3), (5_200, 2, 3)):
        watch.check(core(leader_id, epoch), now_ms)
    assert logged(caplog) == ["INFO metadata quorum leader=2 epoch=3"]
    watch.check(core(-1, 4), 6_000)
    watch.check(core(-1, 5), 7_000)
    watch.check(core(3, 5), 7_500)
    assert logged(caplog) == ["INFO metadata quorum leader=3 epoch=5"]


def test_a_quorum_that_is_lost_for_longer_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    watch = LeaderWatch()
    watch.check(core(2, 3), 0)
    logged(caplog)
    for now_ms in range(1_000, 20_000, 500):
        watch.check(core(-1, 3 + now_ms), now_ms)
    (line,) = logged(caplog)
    assert line.startswith("WARNING metadata quorum lost last_leader=2 epoch=")
    watch.check(core(2, 90_000), 20_000)
    assert logged(caplog) == ["WARNING metadata quorum found leader=2 epoch=90000 after_ms=19000"]
    assert watch.leader_changes_total > 3
