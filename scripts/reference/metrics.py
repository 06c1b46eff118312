"""The page of metrics, from the sheet of their families."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from kraftrio.broker.metrics.families import FAMILIES
from reference.tables import code, section, table


def page() -> Iterator[str]:
    """Every metric, by the part of the node that it is of."""
    yield "# Metrics"
    yield ""
    yield "What `/metrics` shows (see `metrics.listener`). Made from `broker/metrics/families.py`."
    yield ""
    yield "Of topics, partitions and groups `metrics.max.series` are shown at most. The bean"
    yield "is the one that shows this of Apache Kafka, or comes nearest to it. Memory, processor"
    yield "time and open files are there as `process_*`, as of every exporter."
    for source, families in groupby(FAMILIES, lambda family: family.source):
        yield from section(source.capitalize())
        yield from table(
            ("metric", "type", "labels", "meaning", "bean of Apache Kafka"),
            (
                (
                    code(family.name),
                    family.kind.value,
                    ", ".join(code(label) for label in family.labels),
                    family.help,
                    code(family.bean),
                )
                for family in families
            ),
        )
