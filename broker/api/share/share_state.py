"""What leaders of share partitions, and coordinators of share groups, ask the share coordinator.

InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary (KIP-932). What a request means for a share partition is its shard's to
decide; each has an error of its own.

Behaviour (Kafka's)
- A request without a group, without topics, or with a topic without partitions is answered with
  nothing.
- It is a broker that asks: CLUSTER_AUTHORIZATION_FAILED for every partition otherwise.

Version notes: v1 of WriteShareGroupState and ReadShareGroupStateSummary has the delivery complete
count (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.outcome import Now, Outcome
from kraftrio.broker.coordinator.share_coordinator import ShareCoordinator, ask
from kraftrio.broker.coordinator.share_state.shard import ShareStateShard
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.request_parts import nested_parts
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.share_state import (
    SharePartitionKey,
    SharePartitionState,
    ShareStateWrite,
    read_batches,
    wire_batches,
)
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages import share_state as messages
from kraftrio.wire.protocol.api import ApiKey

Answer: TypeAlias = SharePartitionState | ErrorCode | KafkaError | None
"""What the coordinator says about one share partition; see `share_coordinator.ask`."""

_AT_ONCE: Final = 50  # share partitions whose records are appended in one step


class _ShareStateApi(NamedTuple):
    """One of the APIs.

    Attributes:
        doing: what fails, as Kafka's messages have it.
        decide: what a shard does about a partition of the request.
        succeeded: what is said of one that was served.
    """

    response: Callable[..., Any]
    topic_result: Callable[..., Any]
    partition_result: Callable[..., Any]
    doing: str
    decide: Callable[[ShareStateShard, SharePartitionKey, Any, Now], Outcome]
    succeeded: Callable[[SharePartitionState], dict[str, Any]] = lambda _state: {}


def _initialize(
    shard: ShareStateShard,
    key: SharePartitionKey,
    asked: messages.InitializeShareGroupStatePartition,
    now: Now,
) -> Outcome:
    return shard.initialize(key, asked.state_epoch, asked.start_offset, now)


def _read(
    shard: ShareStateShard,
    key: SharePartitionKey,
    asked: messages.ReadShareGroupStatePartition,
    now: Now,
) -> Outcome:
    return shard.read(key, asked.leader_epoch, now)


def _write(
    shard: ShareStateShard,
    key: SharePartitionKey,
    asked: messages.WriteShareGroupStatePartition,
    now: Now,
) -> Outcome:
    write = ShareStateWrite(
        asked.state_epoch,
        asked.leader_epoch,
        asked.start_offset,
        asked.delivery_complete_count,
        read_batches(asked.state_batches),
    )
    return shard.write(key, write, now)


_KINDS: Final = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _ShareStateApi(
        messages.InitializeShareGroupStateResponse,
        messages.InitializeShareGroupStateResult,
        messages.InitializeShareGroupStatePartitionResult,
        "initialize share group state",
        _initialize,
    ),
    ApiKey.READ_SHARE_GROUP_STATE: _ShareStateApi(
        messages.ReadShareGroupStateResponse,
        messages.ReadShareGroupStateResult,
        messages.ReadShareGroupStatePartitionResult,
        "read share group state",
        _read,
        lambda state: {
            "state_epoch": state.state_epoch,
            "start_offset": state.start_offset,
            "state_batches": wire_batches(state.batches),
        },
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: _ShareStateApi(
        messages.WriteShareGroupStateResponse,
        messages.WriteShareGroupStateResult,
        messages.WriteShareGroupStatePartitionResult,
        "write share group state",
        _write,
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: _ShareStateApi(
        messages.DeleteShareGroupStateResponse,
        messages.DeleteShareGroupStateResult,
        messages.DeleteShareGroupStatePartitionResult,
        "delete share group state",
        lambda shard, key, _asked, _now: shard.delete(key),
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _ShareStateApi(
        messages.ReadShareGroupStateSummaryResponse,
        messages.ReadShareGroupStateSummaryResult,
        messages.ReadShareGroupStateSummaryPartitionResult,
        "read share group state summary",
        lambda shard, key, _asked, _now: shard.summary(key),
        lambda state: {
            "state_epoch": state.state_epoch,
            "leader_epoch": state.leader_epoch,
            "start_offset": state.start_offset,
            "delivery_complete_count": state.delivery_complete_count,
        },
    ),
}


class ShareStateHandlers:
    """Serves requests to the share coordinator of this broker."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {key: partial(self._serve, kind) for key, kind in _KINDS.items()}

    def _serve(
        self, kind: _ShareStateApi, request: Any, context: RequestContext
    ) -> Work[Any | Deferred[Any]]:
        """Ask about each share partition; answer when all are known."""
        if not request.group_id or not request.topics:
            return kind.response()
        for topic in request.topics:
            if not topic.partitions:
                return kind.response()
            yield None
        is_broker = context.is_authorized(AclOperation.CLUSTER_ACTION, CLUSTER)
        answers = _StateAnswers(kind)
        for part in nested_parts(request.topics, lambda topic: topic.partitions, _AT_ONCE):
            for topic, partitions in part:
                for asked in partitions:
                    key = SharePartitionKey(request.group_id, topic.topic_id, asked.partition)
                    answers.add(key, self._ask(kind, key, asked) if is_broker else _REFUSED)
            yield None
        return answers.when_complete()

    def _ask(self, kind: _ShareStateApi, key: SharePartitionKey, asked: Any) -> Deferred[Answer]:
        return ask(self._coordinator, key, lambda shard, now: kind.decide(shard, key, asked, now))


_REFUSED: Deferred[Answer] = Deferred.completed(
    KafkaError(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.sentence
    )
)


class _StateAnswers:
    """The answers to one request, by topic, and how many are to come."""

    def __init__(self, kind: _ShareStateApi) -> None:
        self._kind = kind
        self._topics: dict[bytes, list[tuple[int, Answer]]] = {}
        self._missing_count = 0
        self._response: Deferred[Any] | None = None

    def add(self, key: SharePartitionKey, answer: Deferred[Answer]) -> None:
        """Take the answer about a share partition, which may come later."""
        answers = self._topics.setdefault(key.topic_id, [])
        position = len(answers)
        answers.append((key.partition, None))
        self._missing_count += 1
        answer.then(partial(self._note, answers, position))

    def _note(self, answers: list[tuple[int, Answer]], position: int, answer: Answer) -> None:
        answers[position] = answers[position][0], answer
        self._missing_count -= 1
        if not self._missing_count and self._response is not None:
            self._response.complete(self._respond())

    def when_complete(self) -> Any | Deferred[Any]:
        """The response; called when nothing more is added."""
        if not self._missing_count:
            return self._respond()
        self._response = Deferred()
        return self._response

    def _respond(self) -> Any:
        kind = self._kind
        return kind.response(
            results=each(
                lambda topic: kind.topic_result(
                    topic_id=topic[0], partitions=each(self._partition, topic[1])
                ),
                list(self._topics.items()),
            )
        )

    def _partition(self, answered: tuple[int, Answer]) -> Any:
        kind = self._kind
        index, answer = answered
        fields: dict[str, Any] = {}
        if isinstance(answer, ErrorCode):
            message = f"Unable to {kind.doing}: {answer.sentence}"
            fields = {"error_code": answer, "error_message": message}
        elif isinstance(answer, KafkaError):
            fields = {"error_code": answer.code, "error_message": answer.message}
        elif answer is not None:
            fields = kind.succeeded(answer)
        return kind.partition_result(partition=index, **fields)
