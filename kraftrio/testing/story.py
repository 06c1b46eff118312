"""The story of a run: as aligned text, and as a page of HTML with a lane for each client and node.

Called by: `kafka_world`, and `plugin` for `--kafka-report`.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; }
table { border-collapse: collapse; margin-bottom: 3em; }
th { position: sticky; top: 0; background: #eee; text-align: left; }
th, td { border-left: 1px solid #ccc; padding: 1px 8px; vertical-align: top; }
td:first-child { text-align: right; color: #666; font-variant-numeric: tabular-nums; }
tr.fault td { background: #fff3cd; } tr.error td { background: #f8d7da; }
.kind { font-weight: 600; }
"""
_FAULTS = frozenset({"fault", "crash", "pause", "hang", "cut", "term"})
_ERRORS = frozenset({"FAIL", "error", "end"})


class Event(NamedTuple):
    """A line of a story."""

    time: str
    who: str
    kind: str
    text: str


def events_of(lines: Iterable[str]) -> list[Event]:
    """Take the lines of a trace apart; other text belongs to the line before."""
    events: list[Event] = []
    for line in lines:
        time, who, kind, text = [*line.split(None, 3), "", "", "", ""][:4]
        if time.replace(".", "").isdigit():
            events.append(Event(time, who, kind, text))
        elif events:
            events[-1] = events[-1]._replace(text=f"{events[-1].text} {line.strip()}")
    return events


def aligned(events: Iterable[Event]) -> str:
    """Return a line for each event: seconds, who, what, details."""
    events = list(events)
    width = max((len(event.who) for event in events), default=0)
    return "\n".join(f"{e.time:>13} {e.who:<{width}} {e.kind:<6} {e.text}" for e in events)


def page(stories: Iterable[tuple[str, str, str]]) -> str:
    """Return the page.

    Args:
        stories: (name of the test, how it ended, what has happened) of each run.
    """
    parts = [
        _section(name, outcome, events_of(story.splitlines())) for name, outcome, story in stories
    ]
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>Stories of runs</title>"
        f"<style>{_STYLE}</style>\n<h1>Stories of runs</h1>\n" + "\n".join(parts) + "\n</html>\n"
    )


def _section(name: str, outcome: str, events: list[Event]) -> str:
    lanes = _lanes(events)
    head = "".join(f"<th>{escape(lane)}</th>" for lane in lanes)
    rows = "\n".join(_row(event, lanes) for event in events)
    return (
        f"<h2>{escape(name)}: {escape(outcome)}</h2>\n"
        f"<table><tr><th>seconds</th>{head}</tr>\n{rows}\n</table>"
    )


def _lanes(events: list[Event]) -> list[str]:
    """Who has a lane: what happens to all of them first, then machines of clients, then nodes."""
    names = {event.who for event in events}
    nodes = {name for name in names if name[0] == "n" and name[1:].isdigit()}
    general = {"world", "net"} & names
    return [
        *sorted(general, reverse=True),
        *sorted(names - nodes - general),
        *sorted(nodes, key=lambda name: int(name[1:])),
    ]


def _row(event: Event, lanes: list[str]) -> str:
    cell = f"<span class=kind>{escape(event.kind)}</span> {escape(event.text)}"
    cells = "".join(f"<td>{cell if lane == event.who else ''}</td>" for lane in lanes)
    kind = "fault" if event.kind in _FAULTS else "error" if event.kind in _ERRORS else "event"
    return f"<tr class={kind}><td>{event.time}</td>{cells}</tr>"
