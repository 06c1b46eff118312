"""Runs of records in flight: cutting them, finding them, dropping them."""

from __future__ import annotations

from kraftrio.broker.share.state.records import InFlight, RecordState, Run


def in_flight(*bounds: tuple[int, int]) -> InFlight:
    runs = InFlight()
    for first, last in bounds:
        runs.add(Run(first, last, RecordState.ACQUIRED, 1, (first, last)))
    return runs


def bounds(runs: InFlight | list[Run]) -> list[tuple[int, int]]:
    return [(run.first, run.last) for run in runs]


def test_what_lies_between_two_offsets() -> None:
    runs = in_flight((0, 9), (20, 29), (30, 39))
    assert bounds(runs.between(5, 25)) == [(0, 9), (20, 29)]
    assert bounds(runs.between(10, 19)) == []
    assert bounds(runs.between(29, 30)) == [(20, 29), (30, 39)]
    before = runs.at_or_before(19)
    assert before is not None and before.last == 9
    assert in_flight((5, 9)).at_or_before(4) is None


def test_runs_are_cut_at_both_ends() -> None:
    runs = in_flight((0, 9), (10, 19))
    assert bounds(runs.isolate(3, 12)) == [(3, 9), (10, 12)]
    assert bounds(runs) == [(0, 2), (3, 9), (10, 12), (13, 19)]
    assert bounds(runs.isolate(5, 5)) == [(5, 5)]
    assert bounds(runs.isolate(100, 200)) == []


def test_what_is_cut_stays_what_it_was() -> None:
    run = Run(0, 9, RecordState.ACQUIRED, 3, (0, 9))
    run.member_id, run.locked_until_ms, run.is_unwritten, run.write_id = "m1", 7.0, True, 2
    rest = run.cut(4)
    for part in (run, rest):
        assert (part.state, part.delivery_count, part.batch) == (RecordState.ACQUIRED, 3, (0, 9))
        assert (part.member_id, part.locked_until_ms) == ("m1", 7.0)
        assert (part.is_unwritten, part.write_id, part.is_whole_batch) == (True, 2, False)
    assert (len(run), len(rest)) == (4, 6)


def test_what_lies_before_an_offset_is_dropped() -> None:
    runs = in_flight((0, 9), (10, 19), (20, 29))
    runs.drop_before(15)
    assert bounds(runs) == [(15, 19), (20, 29)]
    runs.drop_before(20)
    assert bounds(runs) == [(20, 29)]
    runs.drop_before(100)
    assert not len(runs)


def test_a_run_goes_into_the_gap_that_it_fits() -> None:
    runs = in_flight((0, 9), (20, 29))
    runs.add(Run(10, 19, RecordState.AVAILABLE, 0, (10, 19)))
    assert bounds(runs) == [(0, 9), (10, 19), (20, 29)]
    assert (runs.first.first, runs.last.last) == (0, 29)
