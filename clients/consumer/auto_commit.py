"""Automatic commits: of what the program has finished with, now and then and before a rebalance.

They happen between two calls of the program, so that they never cover what is still being worked
on. A commit that fails is logged, and the next one covers it. One that is due waits for the answer
to the one before: where the coordinator is slow they would pile up, and a rebalance behind them.

Called by: `polling` (between records), `subscription` and `group` (before partitions are given up).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import trio

from kraftrio.clients.consumer.commits import Commits
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.handover import Handover
from kraftrio.clients.errors import KafkaClientError
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)


class AutoCommit:
    """See the module.

    Args:
        interrupt: has the program's next call come by (`submit_due`).

    Attributes:
        is_on: what was finished with is committed before partitions are given up.
    """

    def __init__(
        self,
        commits: Commits,
        handover: Handover,
        config: ConsumerConfig,
        interrupt: Callable[[], None],
    ) -> None:
        self._commits = commits
        self._handover = handover
        self._config = config
        self.is_on = config.enable_auto_commit
        self._interrupt = interrupt
        self._is_due = False
        self._is_unanswered = False

    async def run(self) -> None:
        """Let a commit be due each auto_commit_interval_ms."""
        while True:
            await trio.sleep(self._config.auto_commit_interval_ms / 1000)
            self._is_due = True
            self._interrupt()

    def submit_due(self) -> None:
        """Have what was consumed committed, if that is due and nothing is on its way."""
        if self._is_due and not self._is_unanswered:
            self._is_due = False
            self._is_unanswered = True
            self._commits.submit(self._handover.consumed(), self._on_answer)

    def _on_answer(self, offsets: object, error: KafkaClientError | None) -> None:
        self._is_unanswered = False
        log_failure(offsets, error)

    async def commit(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Commit what was consumed of some partitions, or of all; never raises."""
        if not self.is_on:
            return
        offsets = self._handover.consumed(partitions)
        try:
            await self._commits.commit(offsets, is_automatic=True)
        except KafkaClientError as error:
            log_failure(offsets, error)


def log_failure(offsets: object, error: KafkaClientError | None) -> None:
    """Log the failure of a commit that is not waited for."""
    if error is not None:
        logger.warning("offsets were not committed: %s", error)
