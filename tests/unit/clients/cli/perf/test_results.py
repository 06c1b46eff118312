"""Rates, percentiles and plots of measurements."""

from __future__ import annotations

import pytest

from kraftrio.clients.cli.perf.results import Measurement, histogram, percentile, plot


def test_a_row() -> None:
    measured = Measurement("produce", "a:1", duration_s=2.0)
    measured.note(0.5, 10, 1_000)
    measured.note(1.5, 30, 3_000)
    measured.latencies_ms += [float(number) for number in range(1, 101)]
    assert measured.per_second == [10, 30]
    assert measured.row == {
        "measured": "produce",
        "cluster": "a:1",
        "records": 40,
        "seconds": 2.0,
        "records_per_s": 20,
        "bytes_per_s": 2_000,
        "p50_ms": 51.0,
        "p95_ms": 96.0,
        "p99_ms": 100.0,
        "p99.9_ms": 100.0,
        "max_ms": 100.0,
    }


def test_nothing_was_measured() -> None:
    row = Measurement("produce", "a:1").row
    assert (row["records_per_s"], row["p50_ms"], row["max_ms"]) == (0, None, None)
    assert plot([], 10) == ""
    assert histogram([]) == []


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (50, 2.0), (99, 3.0), (100, 3.0)])
def test_percentiles(percent: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0], percent) == value


def test_plots() -> None:
    assert plot([0, 4, 8], 10) == " ▄█"
    assert plot([1, 1, 8, 8], 2) == "▁█"
    assert plot([0, 0], 10) == "  "


def test_histograms() -> None:
    """Bins of equal ratios, which hold all values."""
    bins = histogram([1.0, 10.0, 100.0, 1000.0, 999.0], 3)
    assert [count for _, _, count in bins] == [1, 1, 3]
    assert bins[0][0] == 1.0
    assert bins[-1][1] == 1000.0
    assert histogram([5.0, 5.0]) == [(5.0, 5.0, 2)]
