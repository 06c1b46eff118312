"""Why a record was read twice, or how often it was read at all.

A client's position moves back for one of few reasons: it took its group's committed offset, it
searched for an offset, or the program moved it. Which one it was is shown by the answer that gave
the position from which the record was fetched again.

Called by: `explain`.
"""

from __future__ import annotations

import re
from typing import Any

from kraftrio.testing.explaining.evidence import Answer, Evidence, Place, Reason
from kraftrio.testing.explaining.exchanges import Exchange
from kraftrio.testing.explaining.requests import (
    Commit,
    FetchedRecord,
    GivenPosition,
    commits,
    deliveries,
    fetch_errors,
    fetch_offsets,
    groups_of,
    positions,
)
from kraftrio.testing.story import Event

_RESETS = {-2: "the earliest", -1: "the latest"}


def of_place(evidence: Evidence, place: Place) -> Answer:
    """Explain why clients got a record more than once; share groups are not considered."""
    found = deliveries(evidence, place)
    if not found:
        text = "no Fetch answer with it came to a client"
        if evidence.gap:
            return Answer(Reason.UNKNOWN, f"{text}, as far as is known: {evidence.gap}")
        return Answer(Reason.NOT_READ, text)
    first, *others = found
    line = evidence.line_of(first.exchange)
    if not others:
        return Answer(Reason.READ_ONCE, f"{_who(first)} fetched it", line)
    again = others[-1]
    before = found[-2]
    mine, theirs = (groups_of(evidence, each.exchange.reader) for each in (before, again))
    if mine and theirs and not mine & theirs:
        text = f"{_who(before)} in group {_listed(mine)}, and {_who(again)} in {_listed(theirs)}"
        return Answer(Reason.OTHER_GROUP, text, evidence.line_of(again.exchange))
    return _again(evidence, place, before, again)


def _who(delivery: FetchedRecord) -> str:
    machine, client_id = delivery.exchange.reader
    return machine if machine == client_id else f"{machine} (client.id {client_id})"


def _listed(groups: set[str]) -> str:
    return ", ".join(sorted(groups))


def _arrived_s(exchange: Exchange) -> float:
    assert exchange.arrived_s is not None, exchange
    return exchange.arrived_s


def _again(evidence: Evidence, place: Place, before: FetchedRecord, again: FetchedRecord) -> Answer:
    """Explain why the second of two readings began where it did."""
    reader = again.exchange.reader
    since_s = _arrived_s(before.exchange)
    start = _first_fetch_back(evidence, place, again, since_s)
    until_s = start.exchange.sent_s
    given = [
        position
        for position in positions(evidence, place.topic_partition, reader)
        if _arrived_s(position.exchange) <= until_s
    ]
    origin = given[-1] if given and given[-1].offset == start.fetch_offset else None
    is_new_reader = reader != before.exchange.reader
    if origin is not None and (is_new_reader or _arrived_s(origin.exchange) > since_s):
        if origin.group:
            return _from_commit(evidence, place, since_s, origin)
        return _from_search(evidence, place, reader, origin)
    is_same_start = not is_new_reader and start.fetch_offset == before.fetch_offset
    if is_same_start and not _went_past(evidence, place, reader, since_s, until_s):
        text = f"{_who(again)} fetched twice from offset {start.fetch_offset}, and not from behind"
        text += " the record: what came first was dropped, or the program moved back at once"
        return Answer(Reason.FETCHED_AGAIN, text, evidence.line_of(start.exchange))
    lost = [
        commit
        for commit in commits(evidence, place.topic_partition)
        if commit.exchange.reader == reader
        and commit.offset > place.offset
        and since_s <= commit.exchange.sent_s <= until_s
        and commit.exchange.answered_s is not None
        and commit.exchange.arrived_s is None
    ]
    where = f"{_who(again)} fetched from offset {start.fetch_offset} again, which no broker gave it"
    if lost:
        text = f"{where}, after the answer to its commit of {lost[-1].offset} was lost"
        return Answer(Reason.COMMIT_ANSWER_LOST, text, evidence.line_of(lost[-1].exchange))
    return Answer(Reason.SEEK, where, evidence.line_of(start.exchange))


def _first_fetch_back(
    evidence: Evidence, place: Place, again: FetchedRecord, since_s: float
) -> FetchedRecord:
    """The first request after a time by which the reader came back to the record."""
    for fetch in fetch_offsets(evidence, place, again.exchange.reader):
        if fetch.exchange.sent_s >= since_s and fetch.fetch_offset <= place.offset:
            return fetch
    return again


def _went_past(
    evidence: Evidence, place: Place, reader: tuple[str, str], since_s: float, until_s: float
) -> bool:
    return any(
        fetch.fetch_offset > place.offset and since_s <= fetch.exchange.sent_s <= until_s
        for fetch in fetch_offsets(evidence, place, reader)
    )


def _from_commit(evidence: Evidence, place: Place, since_s: float, origin: GivenPosition) -> Answer:
    """The reader began at its group's committed offset: why was that not behind the record?"""
    group, until_s = origin.group, origin.exchange.sent_s
    own = [
        commit
        for commit in commits(evidence, place.topic_partition)
        if commit.group == group and commit.exchange.sent_s <= until_s
    ]
    text = f"group {group} had committed offset {origin.offset} when its partitions were taken over"
    behind = [commit for commit in own if commit.offset > place.offset]
    if not behind:
        event = _rebalance(evidence, group, since_s, until_s)
        return Answer(Reason.NOT_COMMITTED, text if event else evidence.unknown(text), event)
    last = behind[-1]
    line = evidence.line_of(last.exchange)
    text = f"{text}; its commit of {last.offset}"
    if last.error:
        return Answer(Reason.COMMIT_REFUSED, f"{text} was refused: {last.error.name}", line)
    if last.exchange.reached_s is None:
        return Answer(Reason.COMMIT_LOST, f"{text} never reached {last.exchange.node}", line)
    back = _lowered(own, last, origin.offset)
    if back is not None:
        text = f"{text} was followed by one of {back.offset}"
        return Answer(Reason.COMMITTED_BACK, text, evidence.line_of(back.exchange))
    return Answer(Reason.UNKNOWN, evidence.unknown(f"{text} was accepted"), line)


def _lowered(own: list[Commit], after: Commit, offset: int) -> Commit | None:
    later = own[own.index(after) + 1 :]
    return next((each for each in reversed(later) if each.offset == offset), None)


def _rebalance(evidence: Evidence, group: str, since_s: float, until_s: float) -> Event | None:
    """What made members of a group give up partitions; the end of a member explains most."""
    of_group = rf'group="?{re.escape(group)}"?( |$)'
    for kind in ("member expired", "member left", "group rebalanced", "member joined"):
        event = evidence.last_event(f"groups: {kind}", of_group, after_s=since_s, before_s=until_s)
        if event is not None:
            return event
    return None


def _from_search(
    evidence: Evidence, place: Place, reader: tuple[str, str], origin: GivenPosition
) -> Answer:
    """The reader searched for where to begin: why had it to?"""
    until_s, event = origin.exchange.sent_s, evidence.line_of(origin.exchange)
    where = _RESETS.get(origin.timestamp, f"that of timestamp {origin.timestamp}")
    text = f"its position was set to {where} offset, {origin.offset}"
    if origin.timestamp not in _RESETS:
        return Answer(Reason.SEEK, text, event)
    missing: Any = [
        position
        for position in positions(evidence, place.topic_partition, reader)
        if position.group and position.offset < 0 and position.exchange.sent_s <= until_s
    ]
    errors = [
        (exchange, error)
        for exchange, error in fetch_errors(evidence, place, reader)
        if exchange.sent_s <= until_s and error.name == "OFFSET_OUT_OF_RANGE"
    ]
    if errors:
        text += ", since what it asked for was out of range"
        event = evidence.line_of(errors[-1][0])
    elif missing:
        text += f", since group {missing[-1].group} had committed nothing"
        event = evidence.line_of(missing[-1].exchange)
    return Answer(Reason.OFFSET_RESET, text, event)
