"""The course of a call for records: look after what happened, take, or wait for something to come.

Rules:
1. A program that asks for more has finished with what it got before: automatic commits and
   rebalances happen here, before anything is taken.
2. Every wait can be cancelled, and nothing is taken before the last of them.

Called by: `consumer`.
"""

from __future__ import annotations

import math
from typing import Any

import trio

from kraftrio.clients.calls import Calls
from kraftrio.clients.consumer.auto_commit import AutoCommit
from kraftrio.clients.consumer.handover import RECORDS_PER_TURN, Handover
from kraftrio.clients.consumer.records import ConsumerBatch, ConsumerRecord
from kraftrio.clients.consumer.subscription import Subscription


class Polling:
    """See the module."""

    def __init__(
        self,
        calls: Calls,
        handover: Handover,
        subscription: Subscription,
        auto_commit: AutoCommit,
    ) -> None:
        self._calls = calls
        self._handover = handover
        self._subscription = subscription
        self._auto_commit = auto_commit
        self._credit = 0  # how many records batches may have before other tasks run

    async def next_record(self) -> ConsumerRecord[Any, Any]:
        """Return the next record, waiting for it."""
        calls, handover = self._calls, self._handover
        calls.begin()
        try:
            while True:
                await self._attend()
                record = handover.next_record()
                if record is not None:
                    return record
                if not handover.has_run:
                    await calls.wait_arrival()
        finally:
            calls.end()

    async def next_batch(self) -> ConsumerBatch[Any, Any]:
        """Return the next batch, waiting for it."""
        calls = self._calls
        calls.begin()
        try:
            while True:
                if calls.is_interrupted or self._credit <= 0:
                    await self._attend()
                else:
                    await trio.lowlevel.checkpoint_if_cancelled()
                    self._handover.finish()
                batch = self._handover.next_batch()
                if batch is not None:
                    self._credit -= batch.record_count
                    return batch
                await calls.wait_arrival()
        finally:
            calls.end()

    async def poll(self, timeout_s: float, max_records: int) -> list[ConsumerBatch[Any, Any]]:
        """Return what there is, waiting that long for something to be there."""
        deadline = trio.current_time() + timeout_s
        calls = self._calls
        calls.begin()
        try:
            while True:
                if await self._attend(deadline):
                    batches = self._handover.next_batches(max_records)
                    if batches:
                        return batches
                if trio.current_time() >= deadline:
                    return []
                with trio.move_on_at(deadline):
                    await calls.wait_arrival()
        finally:
            calls.end()

    async def _attend(self, deadline: float = math.inf) -> bool:
        """Do what has to be done before anything is handed over; lets other tasks run, too.

        Returns:
            False when a rebalance was not over before the deadline.
        """
        calls = self._calls
        calls.is_interrupted = False
        self._credit = RECORDS_PER_TURN
        self._handover.finish()
        self._subscription.check_chosen()
        self._subscription.polled()
        await trio.lowlevel.checkpoint()
        await calls.give_way(deadline)
        self._subscription.raise_failure()
        calls.raise_failure()
        self._auto_commit.submit_due()
        return not calls.turnstile.is_wanted
