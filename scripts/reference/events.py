"""The page of events in the log, from the code and from the sheet in `log_events`."""

from __future__ import annotations

from collections.abc import Iterator

from log_events import events, line_for, lines
from reference.tables import section, table

_LEVELS = ("INFO", "WARN", "ERROR", "FATAL")


def page() -> Iterator[str]:
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
    for component in sorted({component for component, _ in found}):
        rows = []
        for (of, text), levels in sorted(found.items()):
            if of == component:
                shown = ", ".join(sorted(levels, key=_LEVELS.index))
                line = meanings[text]
                shown_text = text.replace("*", "…")
                rows.append((shown_text, shown, line.meaning, line.remedy.lstrip("-")))
        yield from section(component)
        yield from table(("event", "level", "meaning", "what to do"), rows)
