"""The results of a measurement: rates, percentiles, and the rate over time as a plot of text.

Pure. Called by: the measurements and the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraftrio.clients.cli.output import Row

PERCENTILES = (50.0, 95.0, 99.0, 99.9)

_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Measurement:
    """One run against one cluster.

    Attributes:
        per_second: records in each second of the run.
        latencies_ms: of the records, or batches, that were timed.
    """

    what: str
    servers: str
    records: int = 0
    value_bytes: int = 0
    duration_s: float = 0.0
    per_second: list[int] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    def note(self, at_s: float, records: int, value_bytes: int) -> None:
        """Count records, `at_s` seconds after the start."""
        self.records += records
        self.value_bytes += value_bytes
        second = int(at_s)
        while len(self.per_second) <= second:
            self.per_second.append(0)
        self.per_second[second] += records

    @property
    def row(self) -> Row:
        """The run as a row, with plain numbers."""
        duration_s = max(self.duration_s, 1e-9)
        row: dict[str, object] = {
            "measured": self.what,
            "cluster": self.servers,
            "records": self.records,
            "seconds": round(self.duration_s, 3),
            "records_per_s": round(self.records / duration_s),
            "bytes_per_s": round(self.value_bytes / duration_s),
        }
        ordered = sorted(self.latencies_ms)
        for percent in PERCENTILES:
            row[f"p{percent:g}_ms"] = _rounded(percentile(ordered, percent))
        row["max_ms"] = _rounded(ordered[-1] if ordered else None)
        return row


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Return a percentile of sorted values; None if there are none."""
    if not ordered:
        return None
    index = min(int(len(ordered) * percent / 100), len(ordered) - 1)
    return ordered[index]


def plot(values: Sequence[float], width: int) -> str:
    """Return one line of bars as high as the values; values that share a bar are averaged."""
    if not values:
        return ""
    columns = min(width, len(values))
    groups = [
        values[index * len(values) // columns : (index + 1) * len(values) // columns]
        for index in range(columns)
    ]
    heights = [sum(group) / len(group) for group in groups]
    highest = max(heights) or 1
    return "".join(_BARS[round(height / highest * (len(_BARS) - 1))] for height in heights)


def histogram(values: Sequence[float], bins: int = 10) -> list[tuple[float, float, int]]:
    """Return (from, to, count) of bins whose bounds have equal ratios, from least to largest."""
    positive = [max(value, 1e-3) for value in values]
    if not positive:
        return []
    low, high = min(positive), max(positive)
    if low == high:
        return [(low, high, len(positive))]
    ratio = (high / low) ** (1 / bins)
    edges = [low * ratio**index for index in range(bins)] + [high]
    counts = [0] * bins
    for value in positive:
        index = bins - 1
        while index and value < edges[index]:
            index -= 1
        counts[index] += 1
    return [(edges[index], edges[index + 1], counts[index]) for index in range(bins)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
