"""Exchanges as lines of a story: who asked whom for what, and how that ended.

Called by: `kafka_world`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kraftrio.testing.explaining.exchanges import Exchange
from kraftrio.testing.story import Event
from kraftrio.testing.traffic.traffic import TEST_MACHINE
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.records.batch import iter_headers

TopicNames = Mapping[bytes, str]
_KIND = "asks"
_OF_TESTS = frozenset({ApiKey.PRODUCE, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS})
# What changes something, or gives a program its position.
_OF_PROGRAMS = _OF_TESTS | {
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.LEAVE_GROUP,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.DELETE_RECORDS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
}
# Where the entries of a topic's partitions are.
_LISTS = ("partition_data", "partition_responses", "partitions", "partition_indexes")
_OFFSETS = ("committed_offset", "base_offset", "fetch_offset", "offset", "low_watermark")


def lines_of(exchanges: Iterable[Exchange], topic_names: TopicNames) -> list[Event]:
    """The lines of what a reader of the story wants to know."""
    return [
        line_of(exchange, topic_names)
        for exchange in exchanges
        if exchange.api_key in (_OF_TESTS if exchange.machine == TEST_MACHINE else _OF_PROGRAMS)
    ]


def line_of(exchange: Exchange, topic_names: TopicNames) -> Event:
    """One exchange, at the time at which the request was sent."""
    what = f"{APIS[exchange.api_key].name} to {exchange.node}"
    about = _about(exchange.request, topic_names)
    text = (
        f"{what}: {about}; {_outcome(exchange, topic_names)}"
        if about
        else (f"{what}; {_outcome(exchange, topic_names)}")
    )
    who = "_".join(exchange.machine.split())  # with real sockets, a client id
    return Event(f"{exchange.sent_s:.6f}", who, _KIND, text)


def _about(request: Any, topic_names: TopicNames) -> str:
    owners = [request, *getattr(request, "groups", ())]
    parts = [getattr(one, name, "") for one in owners for name in ("transactional_id", "group_id")]
    parts = [part for part in parts if part]
    if hasattr(request, "committed"):
        parts.append("commit" if request.committed else "abort")
    parts += _places(request, topic_names)
    return " ".join(parts)


def _places(message: Any, topic_names: TopicNames) -> list[str]:
    """Each partition, with what is said of it."""
    topics = getattr(message, "topic_data", None) or getattr(message, "responses", None)
    if topics is None:
        topics = getattr(message, "topics", None) or ()
    for group in getattr(message, "groups", ()):
        topics = [*topics, *(getattr(group, "topics", None) or ())]
    found = []
    for topic in topics:
        if isinstance(topic, str):
            continue
        name = getattr(topic, "name", "") or getattr(topic, "topic", "")
        topic_id = getattr(topic, "topic_id", b"")
        name = name or topic_names.get(topic_id, f"topic {topic_id.hex()[:8]}")
        entries = [entry for field in _LISTS for entry in getattr(topic, field, None) or ()]
        found += [_place(name, entry) for entry in entries] or [name]
    return [text for text in found if text]


def _place(name: str, entry: Any) -> str:
    if isinstance(entry, int):
        return f"{name}-{entry}"
    for field in ("index", "partition_index", "partition"):
        if hasattr(entry, field):
            text = f"{name}-{getattr(entry, field)}"
            break
    else:
        return ""
    error = getattr(entry, "error_code", None) or getattr(entry, "partition_error_code", None)
    if error:
        return f"{text} {ErrorCode(error).name}"
    records = getattr(entry, "records", None)
    if records is not None:
        headers = list(iter_headers(records_view(records), allow_partial=True))
        count = sum(header.record_count for header in headers)
        return f"{text} {count} record{'' if count == 1 else 's'}"
    for field in _OFFSETS:
        if hasattr(entry, field):
            return f"{text}={getattr(entry, field)}"
    return text


def _outcome(exchange: Exchange, topic_names: TopicNames) -> str:
    if exchange.answered_s is None:
        if exchange.api_key == ApiKey.PRODUCE and not exchange.request.acks:
            return "no answer wanted"
        return "never arrived" if exchange.reached_s is None else "not answered"
    answer = exchange.answer
    error = getattr(answer, "error_code", None)
    if error:
        text = ErrorCode(error).name
    else:
        places = [text for text in _places(answer, topic_names) if "=" in text or " " in text]
        text = " ".join(places) or "done"
    lost = "" if exchange.arrived_s is not None else ", but the answer was lost"
    return f"{text} after {1000 * (exchange.answered_s - exchange.sent_s):.0f} ms{lost}"
