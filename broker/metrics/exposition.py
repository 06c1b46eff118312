"""Gathered figures as text, in the formats of Prometheus and OpenMetrics (`prometheus-client`).

Figures of the process itself (memory, processor time, open files) come from that library, under the
names that every exporter gives them. Called by `endpoint`, in a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from kraftrio.base.histogram import Spread
from kraftrio.broker.metrics.families import Family, MetricType
from kraftrio.broker.metrics.registry import Gathered, Series
from kraftrio.broker.metrics.telemetry.client_metrics import PushedFamily

_process = ProcessCollector(registry=None)


def exposed(gathered: Gathered, pushed: Iterable[PushedFamily], accept: str) -> tuple[bytes, str]:
    """Write the figures in the format that suits an Accept header best.

    Args:
        pushed: what clients have pushed, under names of theirs.

    Returns:
        the text, and its content type.
    """
    encode, content_type = choose_encoder(accept)
    return encode(_Exposition(gathered, pushed)), content_type


class _Exposition(Collector):
    """What the library writes: our families, and those of the process."""

    def __init__(self, gathered: Gathered, pushed: Iterable[PushedFamily]) -> None:
        self._gathered = gathered
        self._pushed = pushed

    def collect(self) -> Iterator[Metric]:
        for family, series in self._gathered.items():
            yield _metric(family, series)
        yield from map(_pushed_metric, self._pushed)
        yield from _process.collect()


def _metric(family: Family, series: Series) -> Metric:
    if family.kind is MetricType.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, spread in series.items():
            assert isinstance(spread, Spread), family
            histogram.add_metric(labels, _buckets(spread, family), spread.total * family.scale)
        return histogram
    kind = CounterMetricFamily if family.kind is MetricType.COUNTER else GaugeMetricFamily
    plain = kind(family.name, family.help, labels=family.labels)
    for labels, value in series.items():
        assert not isinstance(value, Spread), family
        plain.add_metric(labels, value if family.scale == 1 else value * family.scale)
    return plain


def _pushed_metric(family: PushedFamily) -> Metric:
    kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    metric = kind(family.name, "Pushed by clients (KIP-714).")
    for labels, value in family.series:
        metric.add_sample(family.name, dict(labels), value)
    return metric


def _buckets(spread: Spread, family: Family) -> list[tuple[str, float]]:
    buckets = [
        (str(float(f"{(1 << bound) * family.scale:.9g}")), float(count))
        for bound, count in zip(spread.bounds, spread.below, strict=True)
    ]
    return [*buckets, ("+Inf", float(spread.count))]
