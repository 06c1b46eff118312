"""Asks transaction coordinators, wherever they are, whether partitions belong to a transaction.

Rules
1. Each other broker is asked by one request at a time; what comes meanwhile is the next one. This
   broker is asked by a call for each question: none of them waits for another.
2. A question that gets no answer is not asked again here: the producer sends its batch again.

Called by `verification`, and owns nothing that waits: answers come as deferreds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kraftrio.base.deferred import Deferred
from kraftrio.base.statistics import Statistics
from kraftrio.broker.ports import BrokerRequests
from kraftrio.broker.replica.verification.questions import Question, QuestionBatch, Questions
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import AddPartitionsToTxnResponse

_log = logging.getLogger("kraftrio.verification")


class CoordinatorAsker:
    """See the module.

    Args:
        coordinator_of: the broker that coordinates a transactional id; None: there is none now.
        timeout_ms: for each request (request.timeout.ms).
    """

    def __init__(
        self,
        brokers: BrokerRequests,
        coordinator_of: Callable[[str], int | None],
        timeout_ms: float,
    ) -> None:
        self._brokers = brokers
        self._coordinator_of = coordinator_of
        self._timeout_ms = timeout_ms
        self._waiting: dict[int, Questions] = {}  # of the brokers that are being asked
        self._asked_count = 0
        self._unanswered_count = 0

    def ask(self, question: Question) -> None:
        """Have a question answered; its `answer` says so, maybe at once."""
        self._asked_count += 1
        broker_id = self._coordinator_of(question.transactional_id)
        if broker_id is None:
            question.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        batch = QuestionBatch({question.transactional_id: [question]})
        if broker_id == self._brokers.broker_id:
            self._send(broker_id, batch).when_done(partial(self._settle, broker_id, batch))
            return
        waiting = self._waiting.get(broker_id)
        if waiting is not None:
            waiting.add(question)
            return
        self._waiting[broker_id] = Questions()
        self._send(broker_id, batch).when_done(partial(self._on_answer, broker_id, batch))

    def _send(self, broker_id: int, batch: QuestionBatch) -> Deferred[AddPartitionsToTxnResponse]:
        return self._brokers.send(broker_id, batch.request(), timeout_ms=self._timeout_ms)

    def _on_answer(
        self, broker_id: int, batch: QuestionBatch, done: Deferred[AddPartitionsToTxnResponse]
    ) -> None:
        following = self._waiting[broker_id].take()
        if following is None:
            del self._waiting[broker_id]
        self._settle(broker_id, batch, done)
        if following is not None:
            sent = self._send(broker_id, following)
            sent.when_done(partial(self._on_answer, broker_id, following))

    def _settle(
        self, broker_id: int, batch: QuestionBatch, done: Deferred[AddPartitionsToTxnResponse]
    ) -> None:
        error = done.error
        if error is None:
            batch.answer(done.value)
        elif isinstance(error, ConnectionLost):
            self._unanswered_count += 1
            _log.warning('no answer from coordinator node=%d reason="%s"', broker_id, error)
            batch.fail(ErrorCode.NETWORK_EXCEPTION)
        else:
            raise error

    def statistics(self) -> Statistics:
        """How much was asked, and how many requests were never answered."""
        return {
            "questions_total": self._asked_count,
            "unanswered_requests_total": self._unanswered_count,
            "brokers_being_asked": len(self._waiting),
        }
