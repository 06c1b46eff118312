"""Asks share coordinators, wherever they are, about the state of share partitions (KIP-932).

Owns what waits and what is under way. Rules
1. The coordinator of a share partition is the leader of its partition of `__share_group_state`; the
   topic is made when it is missing.
2. Each coordinator has one request of each kind and group under way; what comes meanwhile is the
   next one, so that many share partitions cost few requests. A caller that needs an order between
   two questions about one share partition waits for the first answer.
3. What a coordinator does not decide (it has moved, is loading, or is not reached) is asked again
   after a pause, until the deadline of the question; then the answer is that error. All of these
   requests may be sent twice: the second time does no harm.

Called by the leaders of share partitions and by the group coordinator; answers come as deferreds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import log_event
from kraftrio.base.statistics import Statistics
from kraftrio.broker.ports import BrokerRequests, SchedulerPort
from kraftrio.broker.share_state import (
    NO_EPOCH,
    SharePartitionKey,
    SharePartitionState,
    ShareStateWrite,
    read_batches,
    wire_batches,
)
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages import share_state as messages

_log = logging.getLogger("kraftrio.share-state")

_DEADLINE_MS: Final = 30_000
_BACKOFF: Final = ExponentialBackoff(20, 1000)
_MOST_IN_REQUEST: Final = 1000  # share partitions
_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)

StateOrError: TypeAlias = SharePartitionState | KafkaError
_Answer: TypeAlias = StateOrError | None


class _StateRequest(NamedTuple):
    """One of the APIs.

    Attributes:
        read: makes the state of a partition's answer; None: there is none.
    """

    request: Callable[..., Any]
    topic: Callable[..., Any]
    partition: Callable[..., Any]
    read: Callable[[Any, dict[str, Any]], SharePartitionState] | None = None


def _read_state(answer: Any, asked: dict[str, Any]) -> SharePartitionState:
    return SharePartitionState(
        answer.state_epoch,
        asked["leader_epoch"],
        answer.start_offset,
        batches=read_batches(answer.state_batches),
    )


def _read_summary(answer: Any, _asked: dict[str, Any]) -> SharePartitionState:
    return SharePartitionState(
        answer.state_epoch,
        answer.leader_epoch,
        answer.start_offset,
        answer.delivery_complete_count,
    )


_INITIALIZE = _StateRequest(
    messages.InitializeShareGroupStateRequest,
    messages.InitializeShareGroupStateTopic,
    messages.InitializeShareGroupStatePartition,
)
_READ = _StateRequest(
    messages.ReadShareGroupStateRequest,
    messages.ReadShareGroupStateTopic,
    messages.ReadShareGroupStatePartition,
    _read_state,
)
_WRITE = _StateRequest(
    messages.WriteShareGroupStateRequest,
    messages.WriteShareGroupStateTopic,
    messages.WriteShareGroupStatePartition,
)
_SUMMARY = _StateRequest(
    messages.ReadShareGroupStateSummaryRequest,
    messages.ReadShareGroupStateSummaryTopic,
    messages.ReadShareGroupStateSummaryPartition,
    _read_summary,
)
_DELETE = _StateRequest(
    messages.DeleteShareGroupStateRequest,
    messages.DeleteShareGroupStateTopic,
    messages.DeleteShareGroupStatePartition,
)


@dataclass(slots=True, eq=False)
class _Question:
    """What is asked about one share partition.

    Attributes:
        fields: of the request's entry, beside the partition.
        answer: the state, None where only something was to be done, or why it was not.
    """

    kind: _StateRequest
    key: SharePartitionKey
    fields: dict[str, Any]
    deadline_ms: float
    answer: Deferred[_Answer]
    attempt_count: int = 0


_Lane: TypeAlias = tuple[int, _StateRequest, str]
"""What goes by one request at a time: to which broker, which API, about which group."""


class ShareStateClient:
    """See the module.

    Args:
        coordinator_of: the broker that coordinates a share partition's key; None: none does now.
        create_topic: sees that the topic of the share coordinators is made, if it is missing.
        timeout_ms: for each request (request.timeout.ms).
    """

    def __init__(
        self,
        brokers: BrokerRequests,
        coordinator_of: Callable[[str], int | None],
        create_topic: Callable[[], None],
        timers: SchedulerPort,
        clock: Clock,
        timeout_ms: float,
    ) -> None:
        self._brokers = brokers
        self._coordinator_of = coordinator_of
        self._create_topic = create_topic
        self._timers = timers
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._lanes: dict[_Lane, list[_Question]] = {}  # under way, each with what is next
        self._again_count = 0
        self._figures = {"requests_total": 0, "retries_total": 0, "given_up_total": 0}

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Deferred[ErrorCode]:
        """Give a share partition a new state."""
        return self._change(
            _INITIALIZE, key, {"state_epoch": state_epoch, "start_offset": start_offset}
        )

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[StateOrError]:
        """Take over a share partition as its leader; earlier leaders are fenced from then on."""
        return self._ask(_READ, key, {"leader_epoch": leader_epoch}).map(_state_of)

    def write(self, key: SharePartitionKey, write: ShareStateWrite) -> Deferred[ErrorCode]:
        """Store what its leader decided about a share partition."""
        return self._change(
            _WRITE,
            key,
            {
                "state_epoch": write.state_epoch,
                "leader_epoch": write.leader_epoch,
                "start_offset": write.start_offset,
                "delivery_complete_count": write.delivery_complete_count,
                "state_batches": wire_batches(write.batches),
            },
        )

    def read_summary(
        self, key: SharePartitionKey, leader_epoch: int = NO_EPOCH
    ) -> Deferred[StateOrError]:
        """Ask how far a share partition is; its start offset is -1 if it was never read."""
        return self._ask(_SUMMARY, key, {"leader_epoch": leader_epoch}).map(_state_of)

    def delete(self, key: SharePartitionKey) -> Deferred[ErrorCode]:
        """Remove a share partition's state; NONE also if there is none."""
        return self._change(_DELETE, key, {})

    def statistics(self) -> Statistics:
        """What waits, and what was asked."""
        return {
            "busy_lanes": len(self._lanes),
            "waiting_questions": sum(map(len, self._lanes.values())) + self._again_count,
            **self._figures,
        }

    # -- asking ---------------------------------------------------------------------------------

    def _change(
        self, kind: _StateRequest, key: SharePartitionKey, fields: dict[str, Any]
    ) -> Deferred[ErrorCode]:
        return self._ask(kind, key, fields).map(_code_of)

    def _ask(
        self, kind: _StateRequest, key: SharePartitionKey, fields: dict[str, Any]
    ) -> Deferred[_Answer]:
        deadline_ms = self._clock.monotonic_ms() + _DEADLINE_MS
        question = _Question(kind, key, fields, deadline_ms, Deferred())
        self._find_coordinator(question)
        return question.answer

    def _find_coordinator(self, question: _Question) -> None:
        broker_id = self._coordinator_of(question.key.coordinator_key)
        if broker_id is None:
            self._create_topic()
            self._ask_again(question, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        lane = broker_id, question.kind, question.key.group_id
        waiting = self._lanes.get(lane)
        if waiting is not None:
            waiting.append(question)
            return
        self._lanes[lane] = [question]
        self._send_soon(lane)

    def _send_soon(self, lane: _Lane) -> None:
        """Send in a turn of its own, with what is asked in this one."""
        turn: Deferred[None] = Deferred()
        turn.when_done(lambda _turn: self._send(lane))
        turn.complete(None)

    def _send(self, lane: _Lane) -> None:
        waiting = self._lanes[lane]
        if not waiting:
            del self._lanes[lane]
            return
        sent, waiting[:] = _take(waiting)
        self._figures["requests_total"] += 1
        answer = self._brokers.send(lane[0], _request(lane, sent), timeout_ms=self._timeout_ms)
        answer.when_done(partial(self._on_answer, lane, sent))

    def _on_answer(self, lane: _Lane, sent: Sequence[_Question], done: Deferred[Any]) -> None:
        error = done.error
        if isinstance(error, ConnectionLost):
            log_event(
                _log,
                logging.WARNING,
                "no answer from share coordinator",
                node=lane[0],
                reason=str(error),
            )
            for question in sent:
                self._ask_again(question, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))
        elif error is not None:
            raise error
        else:
            self._settle(sent, done.value)
        self._send_soon(lane)

    def _settle(self, sent: Sequence[_Question], response: Any) -> None:
        answers = {
            (topic.topic_id, partition.partition): partition
            for topic in response.results
            for partition in topic.partitions
        }
        for question in sent:
            answer = answers.get((question.key.topic_id, question.key.partition))
            if answer is None:
                failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "there is no answer about it")
                question.answer.complete(failure)
            elif answer.error_code in _AGAIN:
                self._ask_again(question, KafkaError(answer.error_code, answer.error_message))
            elif answer.error_code is not ErrorCode.NONE:
                question.answer.complete(KafkaError(answer.error_code, answer.error_message))
            else:
                read = question.kind.read
                state = None if read is None else read(answer, question.fields)
                question.answer.complete(state)

    def _ask_again(self, question: _Question, reason: KafkaError) -> None:
        """Ask after a pause, if there is time."""
        delay_ms = _BACKOFF.after(question.attempt_count)
        question.attempt_count += 1
        if self._clock.monotonic_ms() + delay_ms >= question.deadline_ms:
            self._figures["given_up_total"] += 1
            question.answer.complete(reason)
            return
        self._figures["retries_total"] += 1
        self._again_count += 1
        self._timers.schedule(delay_ms, partial(self._on_retry, question))

    def _on_retry(self, question: _Question) -> None:
        self._again_count -= 1
        self._find_coordinator(question)


def _code_of(answer: _Answer) -> ErrorCode:
    return answer.code if isinstance(answer, KafkaError) else ErrorCode.NONE


def _state_of(answer: _Answer) -> StateOrError:
    assert answer is not None
    return answer


def _take(waiting: list[_Question]) -> tuple[list[_Question], list[_Question]]:
    """Take what goes with the next request: each share partition once, in order."""
    taken: dict[SharePartitionKey, _Question] = {}
    left = []
    for question in waiting:
        if question.key in taken or len(taken) == _MOST_IN_REQUEST:
            left.append(question)
        else:
            taken[question.key] = question
    return list(taken.values()), left


def _request(lane: _Lane, questions: Sequence[_Question]) -> Any:
    _, kind, group_id = lane
    in_order = sorted(questions, key=lambda question: question.key)
    topics = [
        kind.topic(
            topic_id=topic_id,
            partitions=[
                kind.partition(partition=question.key.partition, **question.fields)
                for question in of_topic
            ],
        )
        for topic_id, of_topic in groupby(in_order, key=lambda question: question.key.topic_id)
    ]
    return kind.request(group_id=group_id, topics=topics)
