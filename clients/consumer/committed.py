"""Commits after the body: `async for record in consumer.committed()`.

Owns what is finished: `AfterBody`, and the iterator over it, `CommittedRecords`. Rules:
1. A program that asks for more has finished the body before: what it had is committed then, in the
   background, one request after the other; a request takes everything that was finished meanwhile.
2. A body that does not come back has not finished: after an exception the next loop, of this
   consumer or another one, begins with the same record, or batch. Since a `break` cannot be told
   from an exception, it does so after a `break`, too, unless the program calls `commit`.
3. What is finished is committed before partitions are given up, and when the consumer is closed.

Called by: `consumer`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, Self, TypeVar

from kraftrio.clients.calls import Calls
from kraftrio.clients.consumer.auto_commit import AutoCommit, log_failure
from kraftrio.clients.consumer.commits import Commits, Offsets
from kraftrio.clients.consumer.handover import Handover
from kraftrio.clients.consumer.records import ConsumerBatch, ConsumerRecord
from kraftrio.clients.errors import (
    CommitFailedError,
    KafkaClientError,
    RebalanceInProgressError,
    RetriableError,
)
from kraftrio.clients.serialization import K, V

# What was finished is handed out again, here or to another member, or committed a little later.
_HARMLESS = (RetriableError, CommitFailedError, RebalanceInProgressError)

T = TypeVar("T")


class AfterBody:
    """What the bodies of a consumer's loops have finished."""

    def __init__(
        self, commits: Commits, handover: Handover, auto_commit: AutoCommit, calls: Calls
    ) -> None:
        self._commits = commits
        self._handover = handover
        self._auto_commit = auto_commit
        self._calls = calls
        self._has_begun = False
        self._is_in_body = False
        self._is_sending = False
        self._is_behind = False  # something was finished since the last request

    @property
    def is_committing(self) -> bool:
        """Whether a request is under way, so that what is finished now goes into the next one."""
        return self._is_sending

    def begin(self) -> None:
        """A loop begins: what the body before did not finish comes again."""
        self._has_begun = self._auto_commit.is_on = True
        self.give_back()

    def give_back(self) -> None:
        """Have come again what a body has not finished, if there is such a thing."""
        if self._is_in_body:
            self._is_in_body = False
            self._handover.give_back()

    async def close(self) -> None:
        """Commit what the loops have finished, before the partitions are given up."""
        if self._has_begun:
            self.give_back()
            await self._auto_commit.commit()

    def finish(self) -> Offsets:
        """The program has finished with everything it was given: return where it goes on."""
        self._is_in_body = False
        return self._handover.consumed()

    def handed_over(self) -> None:
        """A body begins."""
        self._is_in_body = True

    def came_back(self) -> None:
        """A body has finished."""
        self._is_in_body = False
        self._commit()

    def came_without(self) -> None:
        """Nothing was handed over: what was before stays finished."""
        self._handover.finish()

    def _commit(self) -> None:
        if self._is_sending:
            self._is_behind = True
            return
        self._is_behind = False
        if finished := self._handover.consumed():
            self._is_sending = True
            self._commits.submit(finished, self._committed)

    def _committed(self, offsets: Offsets, error: KafkaClientError | None) -> None:
        self._is_sending = False
        if error is not None and not isinstance(error, _HARMLESS):
            self._calls.fail(error)
        else:
            log_failure(offsets, error)
        if self._is_behind and not self._is_in_body:
            self._commit()


class _Loop(Generic[T]):
    """An iterator that commits after each body."""

    def __init__(self, take: Callable[[], Awaitable[T]], after_body: AfterBody) -> None:
        self._take = take
        self._after_body = after_body
        self._has_begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._has_begun:
            self._after_body.came_back()
        else:
            self._has_begun = True
            self._after_body.begin()
        try:
            found = await self._take()
        except BaseException:
            self._after_body.came_without()
            raise
        self._after_body.handed_over()
        return found


class CommittedRecords(_Loop[ConsumerRecord[K, V]], Generic[K, V]):
    """What `Consumer.committed` returns; iterate over it once."""

    def __init__(
        self,
        take: Callable[[], Awaitable[ConsumerRecord[K, V]]],
        take_batch: Callable[[], Awaitable[ConsumerBatch[K, V]]],
        after_body: AfterBody,
    ) -> None:
        super().__init__(take, after_body)
        self._take_batch = take_batch

    def batches(self) -> AsyncIterator[ConsumerBatch[K, V]]:
        """Iterate over batches instead, and commit after each."""
        return _Loop(self._take_batch, self._after_body)
