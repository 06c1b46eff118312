"""Plots as SVG text, small enough to stand in a page: bars upright and lying, and lines.

All are 360 units wide, so that text of 11 to 12 units is readable where a phone shows them in 360
pixels, and grows with the page elsewhere. Colours come from the page's style (`--bar`, `--ink`,
`--faint`), which knows the dark and the printed one. Each mark carries its numbers as a `<title>`.

Pure. Called by: `report`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 360
_LEFT: Final = 40
_RIGHT: Final = 8
_TOP: Final = 12
_PLOT_HEIGHT: Final = 150
_BOTTOM: Final = 34


@dataclass(frozen=True, slots=True)
class DataPoint:
    """One value with its place on the axis and what is said about it."""

    label: str
    value: float
    note: str = ""


def nice_ticks(highest: float, count: int = 4) -> list[float]:
    """Return round values from 0 to at least the highest."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    ticks = [0.0]
    while ticks[-1] < highest * 0.999:
        ticks.append(ticks[-1] + step)
    return ticks


def short(value: float) -> str:
    """Return a number as an axis shows it."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def upright_bars(
    points: Sequence[DataPoint], x_title: str, every: int = 1, css: str = "bar"
) -> str:
    """Return bars over an axis, of which each `every`th has its label."""
    ticks = nice_ticks(max((point.value for point in points), default=0))
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(points))
    parts = _grid(ticks)
    for index, point in enumerate(points):
        height = _PLOT_HEIGHT * max(0.0, point.value) / ticks[-1]
        x = _LEFT + index * step
        y = _TOP + _PLOT_HEIGHT - height
        parts.append(
            f'<rect class="{css}" x="{x + step * 0.1:.1f}" y="{y:.1f}" width="{step * 0.8:.1f}"'
            f' height="{height:.1f}"><title>{_tooltip(point)}</title></rect>'
        )
        if index % every == 0:
            parts.append(_text(x + step / 2, _TOP + _PLOT_HEIGHT + 14, point.label, "middle"))
    parts.append(_text(_middle(), _TOP + _PLOT_HEIGHT + 29, x_title, "middle", "axis"))
    return _svg(_TOP + _PLOT_HEIGHT + _BOTTOM, parts)


def lying_bars(points: Sequence[DataPoint], unit: str) -> str:
    """Return bars below each other, each with its label above it and its value after it."""
    highest = max((point.value for point in points), default=0) or 1.0
    row, room = 34, WIDTH - 60
    parts = []
    for index, point in enumerate(points):
        y = index * row
        length = room * max(0.0, point.value) / highest
        parts += [
            _text(0, y + 12, point.label, "start"),
            f'<rect class="bar" x="0" y="{y + 17}" width="{length:.1f}" height="11">'
            f"<title>{_tooltip(point)}</title></rect>",
            _text(length + 5, y + 27, f"{point.value:.1f} {unit}", "start"),
        ]
    return _svg(len(points) * row + 4, parts)


def line(points: Sequence[DataPoint], x_title: str) -> str:
    """Return a line through points that are evenly apart, labelled at both ends."""
    ticks = nice_ticks(max((point.value for point in points), default=0))
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(points) - 1)
    places = [
        (_LEFT + index * step, _TOP + _PLOT_HEIGHT * (1 - max(0.0, point.value) / ticks[-1]))
        for index, point in enumerate(points)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [*_grid(ticks), f'<polyline class="line" points="{path}"/>']
    parts += [
        f'<circle class="bar" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        f"<title>{_tooltip(point)}</title></circle>"
        for (x, y), point in zip(places, points, strict=True)
        if len(points) <= 60
    ]
    if points:
        base = _TOP + _PLOT_HEIGHT + 14
        parts.append(_text(_LEFT, base, points[0].label, "middle"))
        if len(points) > 1:
            parts.append(_text(WIDTH - _RIGHT, base, points[-1].label, "end"))
    parts.append(_text(_middle(), _TOP + _PLOT_HEIGHT + 29, x_title, "middle", "axis"))
    return _svg(_TOP + _PLOT_HEIGHT + _BOTTOM, parts)


def _middle() -> float:
    return (_LEFT + WIDTH - _RIGHT) / 2


def _grid(ticks: Sequence[float]) -> list[str]:
    parts = []
    for tick in ticks:
        y = _TOP + _PLOT_HEIGHT * (1 - tick / ticks[-1])
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(_LEFT - 5, y + 4, short(tick), "end"))
    return parts


def _tooltip(point: DataPoint) -> str:
    reported = f"{point.label}: {point.value:,.1f}"
    return escape(f"{reported} ({point.note})" if point.note else reported)


def _text(x: float, y: float, text: str, anchor: str, css: str = "label") -> str:
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'
