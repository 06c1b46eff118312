"""How the admin client's requests find their broker, and are repeated while that may help.

Owns `AdminCalls`, through which all calls of `Admin` go. Rules:
1. A call takes default_api_timeout_ms at most, all repetitions included; `timeout_ms` overrides it.
2. Requests that fail with a retriable error are repeated after a backoff: to the controller, to a
   coordinator (looked up again), to a partition's leader (metadata refreshed). Each item of
   a request counts by itself where its answer does.
3. When the time is up the last error is raised, or is its item's result; TimedOutError if there was
   none.

Called by: the admin modules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, TypeVar

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.admin.types import Results
from kraftrio.clients.arguments.several import Texts, texts
from kraftrio.clients.arguments.times import Duration, timeout_or_default
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.config import AdminConfig
from kraftrio.clients.coordinators import GROUP_KEY_TYPE
from kraftrio.clients.errors import (
    KafkaClientError,
    NetworkError,
    RetriableError,
    TimedOutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

_ATTEMPTS_FOR_NEW_TOPICS: Final = 5

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

_MOVED_CONTROLLER: Final = frozenset({ErrorCode.NOT_CONTROLLER})
MOVED_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Deadline:
    """The time one call has, and the pauses between its attempts."""

    def __init__(self, config: AdminConfig, timeout_ms: Duration | None) -> None:
        timeout_ms = timeout_or_default("timeout_ms", timeout_ms, config.default_api_timeout_ms)
        self._config = config
        self._ends_at = trio.current_time() + timeout_ms / 1000
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._attempts = 0
        self.timeout_ms = timeout_ms

    @property
    def attempts(self) -> int:
        """How often it was paused."""
        return self._attempts

    @property
    def left_s(self) -> float:
        return max(self._ends_at - trio.current_time(), 0.0)

    @property
    def request_timeout_s(self) -> float:
        """How long one request may take."""
        return max(min(self.left_s, self._config.request_timeout_ms / 1000), 0.001)

    async def pause(self) -> bool:
        """Wait before the next attempt; False: there is no time or right for one."""
        backoff_s = self._backoff.after(self._attempts) / 1000
        self._attempts += 1
        if self._attempts > self._config.retries or self.left_s <= backoff_s:
            return False
        await trio.sleep(backoff_s)
        return True


class AdminCalls:
    """Takes requests to the right broker, repeated while that may help."""

    def __init__(self, cluster: Cluster, config: AdminConfig) -> None:
        self.cluster = cluster
        self.config = config

    # -- to one broker --------------------------------------------------------------------------

    async def ask_any(
        self,
        request: Any,
        deadline: Deadline,
        code_of: Callable[[Any], tuple[ErrorCode, str | None]] | None = None,
    ) -> Any:
        """Ask whichever broker answers, until one answers without a retriable error.

        Args:
            code_of: the error of the whole response.
        """
        cluster = self.cluster
        while True:
            failure: KafkaClientError
            try:
                response = await cluster.request_any(request, deadline.request_timeout_s)
                code, message = code_of(response) if code_of is not None else (ErrorCode.NONE, None)
                if code == ErrorCode.NONE:
                    return response
                raise error_for(code, message)
            except RetriableError as error:
                failure = error
            if not await deadline.pause():
                raise failure

    async def ask_controller(
        self,
        request: Any,
        deadline: Deadline,
        codes_of: Callable[[Any], Iterable[ErrorCode]],
    ) -> Any:
        """Ask the controller; another one if it is not the controller any more.

        Args:
            codes_of: the errors in the response: of all, or of each item.
        """
        cluster = self.cluster
        while True:
            failure: KafkaClientError
            try:
                response = await cluster.request_controller(request, deadline.request_timeout_s)
                if _MOVED_CONTROLLER.isdisjoint(codes_of(response)):
                    return response
                failure = error_for(ErrorCode.NOT_CONTROLLER)
            except RetriableError as error:
                failure = error
            if not await deadline.pause():
                raise failure
            await _refresh(cluster, deadline)

    async def ask_coordinator(
        self,
        key: str,
        request: Any,
        deadline: Deadline,
        codes_of: Callable[[Any], Iterable[ErrorCode]],
        *,
        key_type: int = GROUP_KEY_TYPE,
        retried: frozenset[ErrorCode] = MOVED_COORDINATOR,
        max_version: int | None = None,
    ) -> tuple[int, Any]:
        """Ask the coordinator of a group, or transactional id; return its node id and its answer.

        Args:
            retried: after which errors in the answer it is looked up and asked again.
        """
        cluster = self.cluster
        while True:
            failure: KafkaClientError
            try:
                node_id = await cluster.coordinators.find(key, key_type, deadline.request_timeout_s)
                response = await cluster.request(
                    node_id, request, deadline.request_timeout_s, max_version=max_version
                )
                moved = retried.intersection(codes_of(response))
                if not moved:
                    return node_id, response
                failure = error_for(min(moved))
            except RetriableError as error:
                failure = error
            cluster.coordinators.forget(key, key_type)
            if not await deadline.pause():
                raise failure

    async def ask_node(self, node_id: int | None, request: Any, deadline: Deadline) -> Any:
        """Ask one broker, or any, until it answers or the time is up."""
        if node_id is None:
            return await self.ask_any(request, deadline)
        await self.know_brokers(deadline)
        while True:
            failure: KafkaClientError
            try:
                return await self.cluster.request(node_id, request, deadline.request_timeout_s)
            except RetriableError as error:
                failure = error
            if not await deadline.pause():
                raise failure

    async def know_brokers(self, deadline: Deadline) -> None:
        """Fetch metadata if there is none yet."""
        if not self.cluster.metadata.brokers:
            await self.cluster.refresh(timeout_s=deadline.left_s)

    # -- to the leaders of partitions -----------------------------------------------------------

    async def ask_leaders(
        self,
        items: Mapping[TopicPartition, V],
        deadline: Deadline,
        make_request: Callable[[Mapping[TopicPartition, V]], Any],
        read_response: Callable[[Any], Iterable[tuple[TopicPartition, ErrorCode, T]]],
    ) -> Results[TopicPartition, T]:
        """Ask for each partition its leader, and again those with retriable errors.

        Args:
            read_response: (partition, error code, value) of each partition in a response.
        """
        cluster = self.cluster
        left = dict(items)
        values: dict[TopicPartition, T] = {}
        errors: dict[TopicPartition, KafkaClientError] = {}
        while True:
            # One broker's answer after the other: they are few, and calls are rare.
            for node_id, part in (await self._by_leader(left, deadline, errors)).items():
                try:
                    response = await cluster.request(
                        node_id, make_request(part), deadline.request_timeout_s
                    )
                except KafkaClientError as error:
                    errors.update(dict.fromkeys(part, error))
                    continue
                for topic_partition, code, value in read_response(response):
                    if code == ErrorCode.NONE:
                        values[topic_partition] = value
                        errors.pop(topic_partition, None)
                    else:
                        errors[topic_partition] = error_for(code)
            left = {
                item: items[item]
                for item, error in errors.items()
                if isinstance(error, RetriableError) and not _is_missing(error, deadline)
            }
            if not left or not await deadline.pause():
                return Results(values, errors)
            await _refresh(cluster, deadline)

    async def _by_leader(
        self,
        items: Mapping[TopicPartition, V],
        deadline: Deadline,
        errors: dict[TopicPartition, KafkaClientError],
    ) -> dict[int, dict[TopicPartition, V]]:
        """Group partitions by leader; those without one get an error."""
        cluster = self.cluster
        unknown = {item.topic for item in items} - cluster.metadata.topics.keys()
        if unknown:
            await _refresh(cluster, deadline, unknown)
        groups: dict[int, dict[TopicPartition, V]] = {}
        for item, value in items.items():
            topic = cluster.metadata.topics.get(item.topic)
            leader = cluster.metadata.leader(item.topic, item.partition)
            if leader is not None:
                groups.setdefault(leader[0], {})[item] = value
            elif topic is not None and topic.error_code != ErrorCode.NONE:
                errors[item] = error_for(topic.error_code)
            elif topic is None or item.partition not in topic.partitions:
                errors[item] = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                errors[item] = error_for(ErrorCode.LEADER_NOT_AVAILABLE)
        return groups


# Begins a call of a program, which may take that long at most; None: as the settings say.
# Raises ClosedError unless the client is open.
Begin = Callable[[Duration | None], tuple[AdminCalls, Deadline]]


def checked_group_ids(given: Texts) -> list[str]:
    """Check the ids of groups that a program gives.

    Raises:
        TypeError, ValueError: they cannot be ids of groups.
    """
    return texts("group_ids", given, "a group_id")


async def for_each_group(group_ids: Texts, ask: Callable[[str], Awaitable[T]]) -> Results[str, T]:
    """Ask for one group after the other; an error of one is its result.

    Raises:
        TypeError, ValueError: they cannot be ids of groups; nothing was asked.
    """
    return await for_each(checked_group_ids(group_ids), ask)


async def for_each(items: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> Results[K, T]:
    """Ask for one item after the other; an error of one is its result."""
    values: dict[K, T] = {}
    errors: dict[K, KafkaClientError] = {}
    for each in items:
        try:
            values[each] = await ask(each)
        except KafkaClientError as error:
            errors[each] = error
    return Results(values, errors)


async def describe_one(
    calls: AdminCalls, group_id: str, request: Any, deadline: Deadline
) -> tuple[int, Any]:
    """Ask a group's coordinator about this group alone; return its node id and its description.

    Raises:
        KafkaClientError: the group cannot be described.
    """
    node_id, response = await calls.ask_coordinator(group_id, request, deadline, codes_of_groups)
    reported = response.groups[0]
    if reported.error_code != ErrorCode.NONE:
        raise error_for(reported.error_code, reported.error_message)
    return node_id, reported


def codes_of_groups(response: Any) -> list[ErrorCode]:
    """The errors in a response about groups."""
    return [group.error_code for group in response.groups]


def by_topic(items: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    """Group partitions as requests have them, in their order."""
    for topic, part in groupby(sorted(items), key=lambda item: item.topic):
        yield topic, list(part)


def _is_missing(error: KafkaClientError, deadline: Deadline) -> bool:
    """Whether a topic is still not there after brokers had the time to learn of a new one."""
    return (
        isinstance(error, UnknownTopicOrPartitionError)
        and deadline.attempts >= _ATTEMPTS_FOR_NEW_TOPICS
    )


async def _refresh(cluster: Cluster, deadline: Deadline, topics: Texts = ()) -> None:
    """Refresh metadata; if that fails, the next attempt shows it."""
    try:
        await cluster.refresh(topics, timeout_s=deadline.left_s)
    except (TimedOutError, NetworkError):
        return


def finish(results: Results[K, T], raise_errors: bool) -> Results[K, T]:
    """Return a call's results, or raise their first error if that is wanted."""
    if raise_errors:
        results.values_or_raise()
    return results


def collect(items: Iterable[tuple[K, ErrorCode, str | None, T]]) -> Results[K, T]:
    """Sort (item, error code, message, value) into results."""
    values: dict[K, T] = {}
    errors: dict[K, KafkaClientError] = {}
    for item, code, message, value in items:
        if code == ErrorCode.NONE:
            values[item] = value
        else:
            errors[item] = error_for(code, message)
    return Results(values, errors)
