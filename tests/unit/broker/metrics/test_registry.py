"""Figures are gathered when they are asked for, and not too many of them."""

from __future__ import annotations

from kraftrio.broker.metrics.registry import Gathered, MetricsRegistry, Series


def gathered(registry: MetricsRegistry) -> dict[str, Series]:
    found: Gathered = {}
    for _ in registry.gather(found):
        continue
    return {family.name: series for family, series in found.items()}


def test_sources_of_one_kind_are_told_apart_by_their_labels() -> None:
    registry = MetricsRegistry(10)
    registry.add("connections", lambda: {"connections": 3}, "CLIENTS")
    registry.add("connections", lambda: {"connections": 4, "unknown": 1}, "BROKERS")
    assert gathered(registry)["kraftrio_connections"] == {("CLIENTS",): 3, ("BROKERS",): 4}


def test_a_source_is_asked_only_by_who_gathers() -> None:
    asked: list[int] = []

    def statistics() -> dict[str, float]:
        asked.append(1)
        return {"partitions": 1}

    registry = MetricsRegistry(10)
    registry.add("replicas", statistics)
    assert not asked
    gathered(registry)
    gathered(registry)
    assert len(asked) == 2


def test_what_was_shown_stays_and_the_rest_is_counted() -> None:
    topics: Series = {("a",): 1.0, ("b",): 2.0}
    registry = MetricsRegistry(2)
    registry.add_labelled("topics", lambda: {"bytes_in_total": dict(topics)})
    assert gathered(registry)["kraftrio_topic_bytes_in_total"] == topics
    topics = {("0",): 7.0, **topics, ("c",): 9.0}
    found = gathered(registry)
    assert found["kraftrio_topic_bytes_in_total"] == {("0",): 7.0, ("a",): 1.0}
    assert found["kraftrio_metrics_left_out_series"] == {("kraftrio_topic_bytes_in_total",): 2}
    topics = {("00",): 1.0, **topics}
    assert set(gathered(registry)["kraftrio_topic_bytes_in_total"]) == {("0",), ("a",)}
    del topics[("a",)]
    assert set(gathered(registry)["kraftrio_topic_bytes_in_total"]) == {("0",), ("00",)}
    topics = {("a",): 1.0}
    found = gathered(registry)
    assert found["kraftrio_topic_bytes_in_total"] == topics
    assert found["kraftrio_metrics_left_out_series"] == {}
