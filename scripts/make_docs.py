"""Renew the pages of docs/ that are made from tables in the code.

python scripts/make_docs.py [--check]       --check: change nothing, fail where a page is old
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from log_events import events, line_for, lines

from kraftrio.broker.metrics.families import FAMILIES

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them."""
    old = []
    for name, page in {"metrics.md": metrics_page(), "log-events.md": events_page()}.items():
        path, text = ROOT / "docs" / name, "\n".join(page) + "\n"
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            old.append(name)
    if old:
        print(f"docs/{', docs/'.join(old)}: out of date, run scripts/make_docs.py", file=sys.stderr)
    return 1 if old else 0


def metrics_page() -> Iterator[str]:
    """Every metric, by the part of the node that it is of."""
    yield "# Metrics"
    yield ""
    yield "What `/metrics` shows (see `metrics.listener`). Made from `broker/metrics/families.py`."
    yield ""
    yield "Of topics, partitions and groups `metrics.max.series` are shown at most. The bean"
    yield "is the one that shows this of Apache Kafka, or comes nearest to it. Memory, processor"
    yield "time and open files are there as `process_*`, as of every exporter."
    for source, families in groupby(FAMILIES, lambda family: family.source):
        yield ""
        yield f"## {source.capitalize()}"
        yield ""
        yield "| metric | type | labels | meaning | bean of Apache Kafka |"
        yield "| --- | --- | --- | --- | --- |"
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            bean = f"`{family.bean}`" if family.bean else ""
            yield f"| `{family.name}` | {family.kind.value} | {labels} | {family.help} | {bean} |"


def events_page() -> Iterator[str]:
    """Every event in the log, by the part of the node that logs it."""
    yield "# Events in the log"
    yield ""
    yield "What a node logs at INFO and above, with its meaning and what to do. Made from the code"
    yield "and `scripts/log_events.py`. What is known of an event follows as `key=value`, with"
    yield "`--log-format json` as keys of its own."
    found: dict[tuple[str, str], set[str]] = {}
    for event in events():
        line = line_for(event.text)
        assert line is not None, f"{event.place}: {event.text} has no line"
        found.setdefault((event.component, line.text), set()).update(event.level.split(" or "))
    meanings = {line.text: line for line in lines()}
    order = ("INFO", "WARN", "ERROR", "FATAL")
    for component in sorted({component for component, _ in found}):
        yield ""
        yield f"## {component}"
        yield ""
        yield "| event | level | meaning | what to do |"
        yield "| --- | --- | --- | --- |"
        for (of, text), levels in sorted(found.items()):
            if of == component:
                shown = ", ".join(sorted(levels, key=order.index))
                meaning, remedy = meanings[text].meaning, meanings[text].remedy.lstrip("-")
                text = text.replace("*", "…")
                yield f"| {text} | {shown} | {meaning} | {remedy} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
