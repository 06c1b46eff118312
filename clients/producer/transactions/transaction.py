"""One transaction, as programs use it: `async with producer.transaction() as t`.

Rules:
1. Leaving the body commits: the code after it runs once the transaction is committed. An exception
   or a cancellation in the body aborts, and propagates.
2. What the producer accepts in the body belongs to the transaction. A record that is not written
   fails it, whether somebody waits for its delivery or not.
3. `TransactionAbortedError` says that nothing of the transaction counts, and that it can be done
   again with the same producer; after a `FatalProducerError` the producer can only be closed.

Called by: programs; `producer` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from kraftrio.clients.arguments.values import text
from kraftrio.clients.errors import ConfigError, TransactionStateError
from kraftrio.clients.group_offsets import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetLike,
    as_offsets,
)
from kraftrio.clients.producer.transactions.manager import TransactionManager
from kraftrio.wire.primitives import TopicPartition


class _Committing(Protocol):
    """The setting of a consumer that matters here."""

    @property
    def enable_auto_commit(self) -> bool:
        """Whether it commits without being asked."""


class OffsetSource(Protocol):
    """What gives offsets to commit: a `Consumer`."""

    def positions(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offset of the next record of each partition."""

    def group_metadata(self) -> GroupMetadata:
        """Return the group, and the member that the consumer is in it."""

    @property
    def config(self) -> _Committing:
        """Its settings."""


class Transaction:
    """Made by `Producer.transaction`; to be entered with `async with`, once."""

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager
        self._number = -1  # of the transaction, once it has begun
        self._has_ended = False

    def __repr__(self) -> str:
        state = "ended" if self._has_ended else "open" if self._number >= 0 else "not begun"
        return (
            f"<Transaction {self._number}, {state}>"
            if self._number >= 0
            else f"<Transaction, {state}>"
        )

    async def __aenter__(self) -> Self:
        """Begin, once the previous transaction has ended.

        Raises:
            TransactionStateError: another transaction of the producer is open.
            FatalProducerError: the producer can only be closed.
            TimedOutError: the previous transaction could not be ended within max_block_ms.
        """
        assert self._number < 0, "a transaction is entered once"
        await self._manager.begin()
        self._number = self._manager.core.number
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit; or abort if the body raised.

        Raises:
            TransactionAbortedError: it could not be committed, and is aborted.
            FatalProducerError: the producer can only be closed; `TransactionInDoubtError` if it is
                not known whether the transaction is committed.
        """
        if self._has_ended:
            return
        self._has_ended = True
        if error is None:
            await self._manager.commit()
        else:
            await self._manager.abort(error)

    async def abort(self) -> None:
        """Abort now: nothing of the transaction counts, and leaving the body does nothing more.

        Raises:
            TransactionStateError: it is not open.
            FatalProducerError: the producer can only be closed.
        """
        if self._has_ended or self._number < 0:
            raise TransactionStateError("the transaction is not open")
        self._has_ended = True
        await self._manager.abort()

    async def send_offsets(
        self,
        source: OffsetSource | Mapping[TopicPartition, OffsetLike],
        group: GroupMetadata | str | None = None,
    ) -> None:
        """Have offsets committed with the transaction, and only with it.

        Call it once for all that was consumed for the transaction, before the consumer is asked for
        more: with its next call it may have to give up partitions, whose offsets are then not sent.

        Args:
            source: a consumer, whose positions are committed; or offsets, each the next one to
                consume.
            group: if `source` is offsets: a consumer's `group_metadata()`, or the id of a group
                without members.

        Raises:
            TransactionAbortedError: the coordinator refuses; a `CommitFailedError` is its cause
                where the partitions are no longer the member's.
            FatalProducerError: the producer can only be closed.
            ConfigError: the consumer commits by itself.
            InvalidGroupIdError: the consumer has no group_id.
            TypeError, ValueError: these are no offsets.
        """
        if self._has_ended:
            raise TransactionStateError("the transaction is not open")
        if isinstance(source, Mapping):
            if group is None:
                raise TypeError("offsets need the group that they are of")
            offsets = as_offsets(source)
        else:
            if group is not None:
                raise TypeError("a consumer knows its group: give the one or the other")
            if source.config.enable_auto_commit:
                raise ConfigError(
                    "a consumer whose offsets are committed in transactions needs"
                    " enable_auto_commit=False"
                )
            group = source.group_metadata()
            offsets = dict(source.positions())
        if not isinstance(group, GroupMetadata):
            group = GroupMetadata(text("group", group))
        await self._manager.send_offsets(offsets, group, self._number)
