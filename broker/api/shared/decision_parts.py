"""Asks the controller about what large administrative requests name, part after part.

Behaviour
- A request of more than MOST_ENTRIES entries in all is refused whole, POLICY_VIOLATION, as Kafka
  refuses one that would make more records; so is one that asks for more new partitions.
- Entries of a request are decided on one by one, also in Kafka. So a request with more entries than
  a part holds is sent in parts, each when the one before is committed; an entry that is named
  twice is named twice in its part. When a part runs out of time, the rest is not sent.

Called by the handlers of requests that the controller decides on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES, listed, nested_parts
from kraftrio.broker.server.slices.sliced_sets import SlicedSet, repeated
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.wire.codec.lazy_arrays import KEPT_ENTRIES
from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.codec.schema import ARRAY
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kraftrio.wire.messages.quorum import AlterPartitionRequest

MOST_ENTRIES: Final = 10_000
_MOST_ENTITY_TYPES = 4  # one more than there are
_WEIGHT_OF_TOPIC = 8  # a new one is answered with all its settings
TOO_LARGE: Final = "Unable to perform excessively large batch operation."
_TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where the entries of a request are, and where those of its response.

    Attributes:
        key: what an entry (or a group of entries) is named by.
        inner: the entries within a group, if entries come in groups (partitions in topics).
        answer_key: what a group is named by in the response.
        is_bounded: whether MOST_ENTRIES is.
    """

    array: str
    answers: str
    key: Callable[[Any], Hashable]
    inner: str = ""
    inner_answers: str = ""
    answer_key: Callable[[Any], Hashable] | None = None
    is_bounded: bool = True


_DELETED_BY_NAME = _Shape("topic_names", "responses", lambda name: name)
_SHAPES: Final[dict[type[Any], _Shape]] = {
    CreateTopicsRequest: _Shape("topics", "topics", lambda topic: topic.name),
    CreatePartitionsRequest: _Shape("topics", "results", lambda topic: topic.name),
    DeleteTopicsRequest: _Shape("topics", "responses", lambda topic: (topic.name, topic.topic_id)),
    AlterConfigsRequest: _Shape(
        "resources", "responses", lambda one: (one.resource_type, one.resource_name)
    ),
    IncrementalAlterConfigsRequest: _Shape(
        "resources", "responses", lambda one: (one.resource_type, one.resource_name)
    ),
    AlterClientQuotasRequest: _Shape(
        "entries",
        "entries",
        lambda entry: tuple(sorted((e.entity_type, e.entity_name or "") for e in entry.entity)),
    ),
    ElectLeadersRequest: _Shape(
        "topic_partitions",
        "replica_election_results",
        lambda topic: topic.topic,
        "partitions",
        "partition_result",
        lambda topic: topic.topic,
    ),
    AlterPartitionReassignmentsRequest: _Shape(
        "topics",
        "responses",
        lambda topic: topic.name,
        "partitions",
        "partitions",
        lambda topic: topic.name,
    ),
    ListPartitionReassignmentsRequest: _Shape(
        "topics",
        "topics",
        lambda topic: topic.name,
        "partition_indexes",
        "partitions",
        lambda topic: topic.name,
    ),
    AlterPartitionRequest: _Shape(
        "topics",
        "topics",
        lambda topic: topic.topic_id,
        "partitions",
        "partitions",
        lambda topic: topic.topic_id,
        is_bounded=False,
    ),
}


def decide_in_parts(decide: Callable[[Any], Deferred[Any]], request: Any) -> Work[Any]:
    """Have a request decided on, in parts if it is large.

    Args:
        decide: asks the controller about a request, or a part of it.
    """
    shape = _SHAPES.get(type(request))
    if type(request) is DeleteTopicsRequest and not request.topics:
        shape = _DELETED_BY_NAME
    if type(request) is AlterClientQuotasRequest:
        yield from _shorten_entities(request)
    if shape is None or shape.is_bounded:
        entries = yield from _count_entries(request)
        if entries > MOST_ENTRIES:
            return refuse_excessive(request)
        partitions = yield from _new_partitions(request)
        if partitions > MOST_ENTRIES:
            return error_response(request, ErrorCode.POLICY_VIOLATION, _TOO_MANY_PARTITIONS)
        if shape is None or max(entries, partitions) <= PART_ENTRIES:
            return decide(request)
    return (yield from _decide_in_parts(decide, request, shape))


def decide_each(
    decide: Callable[[Any], Deferred[Any]], requests: Iterable[Any | None]
) -> Work[list[Any]]:
    """Have requests decided on, each when the one before is committed; return the answers.

    Args:
        requests: the parts of one, say; None is only a pause.
    """
    answers = []
    for request in requests:
        if request is not None:
            decision = decide(request)
            yield decision
            answers.append(decision.value)
        yield None
    return answers


def is_excessive(request: Any) -> Slices[bool]:
    """Whether a request has more entries than are decided on at once."""
    return (yield from _count_entries(request)) > MOST_ENTRIES


def refuse_excessive(request: Any) -> Any:
    """Return the answer to a request that has too many."""
    return error_response(request, ErrorCode.POLICY_VIOLATION, TOO_LARGE)


def _decide_in_parts(
    decide: Callable[[Any], Deferred[Any]], request: Any, shape: _Shape
) -> Work[Any]:
    entries = getattr(request, shape.array) or []
    parts: Iterator[list[Any]]
    if shape.inner:
        parts = _parts_of_groups(entries, shape)
    else:
        twice = yield from repeated(shape.key(entry) for entry in entries)
        parts = _parts_of_entries(entries, shape, twice)
    response: Any = None
    for part in parts:
        if not part:
            yield None
            continue
        yield from _decode_arrays(part)
        asked = copy.copy(request)
        setattr(asked, shape.array, part)
        if response is not None and _ran_out_of_time(response):
            answer = error_response(asked, ErrorCode.REQUEST_TIMED_OUT)
        else:
            decision = decide(asked)
            yield decision
            answer = decision.value
        if response is None:
            response = answer
        else:
            _join(response, answer, shape)
        yield None
    return decide(request) if response is None else response


def _decode_arrays(part: list[Any]) -> Slices[None]:
    """Decode what entries hold in arrays of their own (configs, say).

    The controller decides on a part without a pause; it is to find the entries in memory.
    """
    for entry in part:
        if isinstance(entry, str):
            continue
        for field in spec_of(type(entry)).fields:
            if field.kind is ARRAY and (inner := getattr(entry, field.name)):
                setattr(entry, field.name, (yield from listed(inner)))


def _parts_of_entries(
    entries: Iterable[Any], shape: _Shape, twice: SlicedSet[Hashable]
) -> Iterator[list[Any]]:
    """Cut entries into parts; an empty part is only a pause."""
    seen: SlicedSet[Hashable] = SlicedSet()
    part: list[Any] = []
    room = PART_ENTRIES
    for entry in entries:
        key = shape.key(entry)
        if not seen.add(key):
            yield []
            continue
        part += [entry, entry] if key in twice else [entry]
        room -= _WEIGHT_OF_TOPIC + _partitions_of(entry) if isinstance(entry, CreatableTopic) else 1
        if room <= 0:
            yield part
            part, room = [], PART_ENTRIES
    if part:
        yield part


def _parts_of_groups(groups: Iterable[Any], shape: _Shape) -> Iterator[list[Any]]:
    for part in nested_parts(groups, lambda group: getattr(group, shape.inner)):
        asked = []
        for group, entries in part:
            asked.append(copy.copy(group))
            setattr(asked[-1], shape.inner, entries)
        yield asked


def _join(response: Any, answer: Any, shape: _Shape) -> None:
    """Add the answer about a part to the response."""
    for name in ("error_code", "error_message"):
        if not getattr(response, name, True):
            setattr(response, name, getattr(answer, name))
    if answer.throttle_time_ms > response.throttle_time_ms:
        response.throttle_time_ms = answer.throttle_time_ms
    given, more = getattr(response, shape.answers), getattr(answer, shape.answers)
    if shape.answer_key is not None and given and more:
        first = next(iter(more))
        if shape.answer_key(given[-1]) == shape.answer_key(first):
            getattr(given[-1], shape.inner_answers).extend(getattr(first, shape.inner_answers))
            more = list(more)[1:]
    given.extend(more)


def _ran_out_of_time(response: Any) -> bool:
    return getattr(response, "error_code", 0) == ErrorCode.REQUEST_TIMED_OUT or any(
        getattr(last, "error_code", 0) == ErrorCode.REQUEST_TIMED_OUT
        for answers in ("topics", "results", "responses", "entries")
        for last in getattr(response, answers, [])[-1:]
    )


def _count_entries(message: Any) -> Slices[int]:
    """Count the entries of all arrays, at any depth, until they are too many."""
    total = 0
    for field in spec_of(type(message)).fields:
        entries = getattr(message, field.name) if field.kind is ARRAY else None
        if not entries:
            continue
        total += len(entries)
        if isinstance(field.element, type):
            for entry in entries:
                if total > MOST_ENTRIES:
                    return total
                total += yield from _count_entries(entry)
                yield
    return total


def _shorten_entities(request: AlterClientQuotasRequest) -> Slices[None]:
    """Keep of entities with very many parts only what they are refused for.

    The last part of a type counts, and more types than there are make no entity.
    """
    for entry in request.entries:
        if len(entry.entity) > KEPT_ENTRIES:
            by_type: dict[str, AlterClientQuotasEntityData] = {}
            for part in entry.entity:
                if part.entity_type in by_type or len(by_type) < _MOST_ENTITY_TYPES:
                    by_type[part.entity_type] = part
                yield
            entry.entity = list(by_type.values())
        yield


def _new_partitions(request: Any) -> Slices[int]:
    total = 0
    if isinstance(request, CreateTopicsRequest):
        for topic in request.topics:
            total += _partitions_of(topic)
            yield
    return total


def _partitions_of(topic: CreatableTopic) -> int:
    return len(topic.assignments) or max(topic.num_partitions, 1)
