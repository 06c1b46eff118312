"""Figures over time as lines of an SVG: coordinates, and labels at the edges.

Pure. Called by: the pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraftrio.clients.console.history.series import Point

_GAP_MS: Final = 30_000  # without a sample for that long the line is broken
MAX_POINTS: Final = 240  # more cannot be distinguished
SPARK_POINTS: Final = 48


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart to be drawn.

    Attributes:
        lines: coordinates "x,y x,y" of each unbroken part, for `polyline`.
        peak: the largest value.
        first_ms, last_ms: between which moments; None without a value.
    """

    width: int
    height: int
    lines: tuple[str, ...]
    peak: float
    first_ms: int | None
    last_ms: int | None


def make_chart(points: Sequence[Point], width: int, height: int) -> Chart:
    """Return the chart of figures, from zero to the largest of them."""
    kept = _thinned(points)
    if not kept:
        return Chart(width, height, (), 0.0, None, None)
    peak = max(point.value for point in kept)
    top = max(peak, 1.0)
    first_ms, last_ms = kept[0].at_ms, kept[-1].at_ms
    span_ms = max(last_ms - first_ms, 1)
    lines: list[list[str]] = []
    before_ms: int | None = None
    for at_ms, value in kept:
        if before_ms is None or at_ms - before_ms > max(_GAP_MS, 3 * span_ms // MAX_POINTS):
            lines.append([])
        x = 1 + (width - 2) * (at_ms - first_ms) / span_ms
        y = height - 1 - (height - 2) * value / top
        lines[-1].append(f"{x:.1f},{y:.1f}")
        before_ms = at_ms
    return Chart(width, height, tuple(" ".join(line) for line in lines), peak, first_ms, last_ms)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Return few enough points: of neighbours the largest, so that no peak is lost."""
    step = -(-len(points) // MAX_POINTS)
    if step <= 1:
        return list(points)
    parts = (points[start : start + step] for start in range(0, len(points), step))
    return [max(part, key=lambda point: point.value) for part in parts]
