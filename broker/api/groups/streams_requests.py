"""Reads in slices what a long StreamsGroupHeartbeat names; refuses what no application needs.

A heartbeat is served in one step. So that this stays short, a topology may have 4,000 parts
(subtopologies, topics, settings of topics), and a member 20,000 tasks. Called by `streams_groups`.
"""

from __future__ import annotations

from typing import Any

from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import KEPT_ENTRIES, Countable
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestTopology,
)

MAX_TOPOLOGY_ENTRIES = 4_000
MAX_TASKS = 20_000
_MAX_TAGS = 1_000
_SLICE_ENTRIES = 64

_TOPIC_LISTS = ("state_changelog_topics", "repartition_source_topics")
_PLAIN_LISTS = ("source_topics", "source_topic_regex", "repartition_sink_topics")
_INDEX_LISTS = ("source_topics", "source_topic_regex", "repartition_source_topics")
_TASK_LISTS = ("active_tasks", "standby_tasks", "warmup_tasks")


class _Budget:
    """How many entries may still be read."""

    def __init__(self, limit: int, what: str) -> None:
        self._left = self._limit = limit
        self._what = what

    def take(self, count: int) -> None:
        """Note entries that are about to be read; KafkaError INVALID_REQUEST if too many."""
        self._left -= count
        if self._left < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The request names more than {self._limit} {self._what}.",
            )


def is_long(request: StreamsGroupHeartbeatRequest) -> bool:
    """Whether what a request names takes long to be read."""
    if request.topology is None and request.active_tasks is None and not request.client_tags:
        return False  # what only one of the other lists has is refused
    arrays: list[Any] = [request.client_tags or ()]
    for name in _TASK_LISTS:
        tasks = getattr(request, name) or ()
        arrays.append(tasks)
        if isinstance(tasks, list):
            arrays += [one.partitions for one in tasks]
    if request.topology is not None:
        subtopologies = request.topology.subtopologies
        arrays.append(subtopologies)
        if isinstance(subtopologies, list):
            for one in subtopologies:
                arrays += [getattr(one, name) for name in (*_TOPIC_LISTS, *_PLAIN_LISTS)]
                arrays.append(one.copartition_groups)
    return sum(map(len, arrays)) > KEPT_ENTRIES


def read_in_slices(request: StreamsGroupHeartbeatRequest) -> Work[None]:
    """Make ordinary lists of what a request names.

    Raises:
        KafkaError: INVALID_REQUEST, it is too much.
    """
    if request.client_tags is not None:
        request.client_tags = yield from _read(request.client_tags, _Budget(_MAX_TAGS, "tags"))
    for name in _TASK_LISTS:
        if getattr(request, name) is not None:
            budget = _Budget(MAX_TASKS, "tasks")
            tasks = yield from _read(getattr(request, name), budget)
            for one in tasks:
                one.partitions = yield from _read(one.partitions, budget)
            setattr(request, name, tasks)
    if request.topology is not None:
        yield from _read_topology(request.topology)


def _read_topology(topology: StreamsGroupHeartbeatRequestTopology) -> Work[None]:
    budget = _Budget(MAX_TOPOLOGY_ENTRIES, "parts of a topology")
    subtopologies = yield from _read(topology.subtopologies, budget)
    for one in subtopologies:
        for name in _PLAIN_LISTS:
            setattr(one, name, (yield from _read(getattr(one, name), budget)))
        for name in _TOPIC_LISTS:
            topics = yield from _read(getattr(one, name), budget)
            for topic in topics:
                topic.topic_configs = yield from _read(topic.topic_configs, budget)
            setattr(one, name, topics)
        groups = yield from _read(one.copartition_groups, budget)
        for group in groups:
            for name in _INDEX_LISTS:
                setattr(group, name, (yield from _read(getattr(group, name), budget)))
        one.copartition_groups = groups
    topology.subtopologies = subtopologies


def _read(entries: Countable[Any], budget: _Budget) -> Work[list[Any]]:
    budget.take(len(entries))
    read: list[Any] = []
    yield None  # also for the many that hold nothing
    for count, entry in enumerate(entries, 1):
        read.append(entry)
        if count % _SLICE_ENTRIES == 0:
            yield None
    return read
