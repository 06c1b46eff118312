"""Both text formats say what was gathered, as a parser of theirs reads it."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from kraftrio.base.histogram import Histogram
from kraftrio.broker.metrics.exposition import exposed
from kraftrio.broker.metrics.registry import Gathered, MetricsRegistry


def page(accept: str) -> tuple[str, str]:
    times = Histogram()
    for nanoseconds in (1_000, 100_000, 5_000_000):
        times.add(nanoseconds)
    registry = MetricsRegistry(10)
    registry.add_labelled(
        "requests",
        lambda: {
            "nanoseconds": {("Fetch",): times.snapshot((16, 20))},
            "errors_total": {("Fetch", "UNKNOWN_TOPIC_ID"): 3},
        },
    )
    registry.add_labelled("topics", lambda: {"bytes_in_total": {('a"\\\n',): 5}})
    registry.add("upkeep", lambda: {"cleaner_busy_ms_total": 1500.0})
    gathered: Gathered = {}
    for _ in registry.gather(gathered):
        continue
    text, content_type = exposed(gathered, (), accept)
    return text.decode(), content_type


def samples(families: object) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families  # type: ignore[attr-defined]
        for sample in family.samples
    }


EXPECTED = {
    ("kraftrio_request_seconds_bucket", "Fetch", "6.5536e-05"): 1,
    ("kraftrio_request_seconds_bucket", "Fetch", "0.001048576"): 2,
    ("kraftrio_request_seconds_bucket", "Fetch", "+Inf"): 3,
    ("kraftrio_request_seconds_count", "Fetch"): 3,
    ("kraftrio_request_seconds_sum", "Fetch"): 0.005101,
    ("kraftrio_request_errors_total", "Fetch", "UNKNOWN_TOPIC_ID"): 3,
    ("kraftrio_topic_bytes_in_total", 'a"\\\n'): 5,
    ("kraftrio_log_cleaner_seconds_total",): 1.5,
}


def test_prometheus_text() -> None:
    text, content_type = page("text/plain")
    assert content_type.startswith("text/plain; version=0.0.4")
    found = samples(prometheus(text))
    assert {key: round(found[key], 9) for key in EXPECTED} == EXPECTED
    assert found[("process_resident_memory_bytes",)] > 1e6


def test_open_metrics_text() -> None:
    text, content_type = page("application/openmetrics-text; version=1.0.0, text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    found = samples(open_metrics(text))  # type: ignore[no-untyped-call]
    assert {key: round(found[key], 9) for key in EXPECTED} == EXPECTED
