"""Gathers the figures of the shells, to be shown.

Owns `MetricsRegistry`: the sources by their names in `families`, and which series are shown. Rules
1. A source is asked when its figures are read, and at no other time. It is asked on the event
   loop, one in each step of the generator that `gather` is, so that a node with much to say holds
   nobody up.
2. A family shows at most `max_series` series. Those that were shown stay, as long as they exist, so
   that a counter is not seen to begin again; those for which there is no room are counted.
3. What a source says and `families` does not name is not shown; a test finds it.

Filled by the roles of a node; read by `endpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from kraftrio.base.histogram import Spread
from kraftrio.base.statistics import LabelledStatistics, Statistics
from kraftrio.broker.metrics.families import FAMILIES, PREFIX, Family

Series: TypeAlias = dict[tuple[str, ...], float | Spread]
Gathered: TypeAlias = dict[Family, Series]

_LEFT_OUT = PREFIX + "metrics_left_out_series"


class MetricsRegistry:
    """See the module.

    Args:
        max_series: of a family.
    """

    def __init__(self, max_series: int) -> None:
        self.max_series = max_series
        self._sources: dict[str, list[Callable[[], LabelledStatistics]]] = {}
        self._shown: dict[Family, Series] = {}
        self._families: dict[str, list[Family]] = {}
        for family in FAMILIES:
            self._families.setdefault(family.source, []).append(family)

    def add(self, source: str, statistics: Callable[[], Statistics], *labels: str) -> None:
        """Show what a shell says.

        Args:
            labels: which of several shells of that source it is.
        """

        def labelled() -> LabelledStatistics:
            return {name: {labels: value} for name, value in statistics().items()}

        self.add_labelled(source, labelled)

    def add_labelled(self, source: str, statistics: Callable[[], LabelledStatistics]) -> None:
        """Show what a shell says of many things of a kind."""
        assert source in self._families, f"no metric is of {source}"
        self._sources.setdefault(source, []).append(statistics)

    @property
    def sources(self) -> Mapping[str, list[Callable[[], LabelledStatistics]]]:
        """What was added, by source."""
        return self._sources

    def gather(self, gathered: Gathered) -> Iterator[None]:
        """Ask the sources, one in each step."""
        left_out: Series = {}
        for source, shells in self._sources.items():
            for statistics in shells:
                found = statistics()
                for family in self._families[source]:
                    series = found.get(family.figure)
                    if series is not None:
                        gathered.setdefault(family, {}).update(series)
                yield
        for family, series in gathered.items():
            if len(series) > self.max_series:
                left_out[(family.name,)] = len(series) - self.max_series
                series = gathered[family] = self._choose(family, series)
            if family in self._shown:
                self._shown[family] = series
        for family in FAMILIES:
            if family.name == _LEFT_OUT:
                gathered[family] = left_out

    def _choose(self, family: Family, series: Series) -> Series:
        """Rule 2."""
        shown = self._shown.get(family, {})
        chosen = {key: series[key] for key in shown if key in series}
        for key, value in series.items():
            if len(chosen) >= self.max_series:
                break
            chosen.setdefault(key, value)
        self._shown[family] = chosen
        return chosen
