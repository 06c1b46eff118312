"""Lines of charts: from zero to the peak, broken where nothing was seen, no peak thinned away."""

from __future__ import annotations

from kraftrio.clients.console.history.charts import make_chart
from kraftrio.clients.console.history.series import Point


def test_a_line() -> None:
    chart = make_chart([Point(0, 0), Point(1_000, 5), Point(2_000, 10)], 102, 12)
    assert chart.lines == ("1.0,11.0 51.0,6.0 101.0,1.0",)
    assert (chart.peak, chart.first_ms, chart.last_ms) == (10, 0, 2_000)


def test_nothing_and_nothing_but_zeros() -> None:
    assert make_chart([], 10, 10).lines == ()
    chart = make_chart([Point(5, 0), Point(6, 0)], 12, 12)
    assert chart.lines == ("1.0,11.0 11.0,11.0",)
    assert chart.peak == 0


def test_a_time_without_samples_breaks_the_line() -> None:
    points = [Point(at_ms, 1) for at_ms in (0, 2_000, 200_000, 202_000)]
    assert len(make_chart(points, 100, 10).lines) == 2


def test_a_peak_outlives_thinning() -> None:
    points = [Point(2_000 * number, 7 if number == 501 else 1) for number in range(900)]
    chart = make_chart(points, 640, 96)
    assert chart.peak == 7
    (line,) = chart.lines
    assert len(line.split()) <= 240
    assert sum(point.endswith(",1.0") for point in line.split()) == 1
