"""One share fetch while it looks for records, and waits for them; and its answer.

A fetch that waits is woken by records that become available to it (`broker/share/waiting`), and
looks at these partitions alone, unless it wants more than one byte.

Called by `share_fetch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.timers import Timers
from kraftrio.broker.security.authorizer import AclOperation, ResourceType
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.broker.share.led_share_partition import LedSharePartition, Taken
from kraftrio.broker.share.sessions import SessionPartition, ShareSession
from kraftrio.broker.share.share_partitions import SharePartitions
from kraftrio.broker.share.state.acquisition import Demand
from kraftrio.broker.share.waiting import ShareFetchWaiter, Turns
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_fetch import (
    AcquiredRecords,
    ShareFetchRequest,
    SharePartitionData,
)
from kraftrio.wire.stored_bytes import StoredBytes

# Records of a partition up to this size are read for the answer, larger ones are only named in it.
_HOLD_BYTES: Final = 16 << 10
_HOLD_BYTES_IN_ALL: Final = 256 << 10

_RECORD_LIMIT: Final = 1
_AT_ONCE: Final = 4  # partitions


@dataclass(frozen=True, slots=True)
class ShareFetchServices:
    """What share fetches use of the broker.

    Attributes:
        max_bytes: above which no answer grows (fetch.max.bytes).
        response_memory: while it has no room, nothing is read for an answer.
        throttle: holds consumers to their quotas; None: they have none.
    """

    timers: Timers
    clock: Clock
    max_bytes: int
    response_memory: MemoryBudget | None = None
    throttle: Throttle | None = None

    def most_bytes(self, request: ShareFetchRequest, context: RequestContext) -> int:
        """How many bytes of records an answer may have, the first batch apart."""
        most_bytes = min(request.max_bytes, self.max_bytes)
        throttle = self.throttle
        if throttle is None or not throttle.quotas.is_on:
            return most_bytes
        return int(min(most_bytes, throttle.most_consumed_bytes(context)))

    def wait_ms(self, size_bytes: int, context: RequestContext) -> int:
        """How long a member has to wait that is given so many bytes of records.

        They are given in any case: they are acquired, and would wait for the end of their locks.
        """
        throttle = self.throttle
        if throttle is None or not throttle.quotas.is_on:
            return 0
        return throttle.consume(context, size_bytes)

    def pause(self, delay_ms: float) -> Deferred[None]:
        """What is completed after a while."""
        over: Deferred[None] = Deferred()
        self.timers.schedule(delay_ms, lambda: over.complete(None))
        return over


class ShareFetchAnswers:
    """The answer to one share fetch while it is put together, partition by partition."""

    def __init__(self, session: ShareSession | None) -> None:
        self._session = session  # None: everything is answered
        self.data: dict[SessionPartition, SharePartitionData] = {}
        self.record_count = 0
        self.record_bytes = 0
        self.held_bytes = 0

    def of(self, named: SessionPartition) -> SharePartitionData:
        answer = self.data.get(named)
        if answer is None:
            answer = self.data[named] = SharePartitionData(
                partition_index=named.partition, records=b"", acquired_records=[]
            )
        return answer

    def refuse(self, named: SessionPartition, error: KafkaError) -> None:
        self.of(named).error_code = error.code

    def add(self, named: SessionPartition, taken: Taken) -> None:
        """A partition was looked at, and gave this."""
        answer = self.of(named)
        if not taken.ranges:
            return
        answer.records = taken.records
        answer.acquired_records = [
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in taken.ranges
        ]
        self.record_count += sum(last - first + 1 for first, last, _ in taken.ranges)
        self.record_bytes += len(taken.records)
        if not isinstance(taken.records, StoredBytes):
            self.held_bytes += len(taken.records)

    def to_report(self) -> Work[list[tuple[SessionPartition, SharePartitionData]]]:
        """The partitions whose answers are due; they count as reported from now on."""
        due = []
        for named, answer in self.data.items():
            is_due = self._session is None or self._session.note_answer(
                named,
                has_data=bool(answer.acquired_records),
                is_error=answer.error_code is not ErrorCode.NONE,
            )
            if is_due:
                due.append((named, answer))
            if not len(due) % 100:
                yield None
        return due


class OngoingShareFetch:
    """One share fetch while it looks for records, and waits for them."""

    def __init__(
        self,
        share_partitions: SharePartitions,
        services: ShareFetchServices,
        request: ShareFetchRequest,
        context: RequestContext,
        session: ShareSession,
        answers: ShareFetchAnswers,
    ) -> None:
        self._share_partitions = share_partitions
        self._services = services
        self._request = request
        self._context = context
        self._session = session
        self._answers = answers
        memory = services.response_memory
        self._max_bytes = services.most_bytes(request, context)
        self._may_hold = _HOLD_BYTES_IN_ALL if memory is None or memory.has_room else 0
        self._until_ms = services.clock.monotonic_ms() + request.max_wait_ms
        self._is_over = False  # the time, as the timer says: a clock may not be there yet
        self._is_refused = False  # somewhere, while it waited
        self._led: dict[Turns, tuple[SessionPartition, LedSharePartition]] = {}

    @property
    def _is_answered(self) -> bool:
        return self._answers.record_count > 0 or self._is_refused or not self._led

    def run(self) -> Work[None]:
        """Acquire what there is, as soon as there is something, or the time is up."""
        yield from self._find()
        if self._request.max_records <= 0 or self._max_bytes <= 0 or not self._led:
            return
        is_last = self._request.max_wait_ms <= 0
        yield from self._take(list(self._led), is_last=is_last)
        if not is_last and not self._is_answered:
            yield from self._wait()

    def _find(self) -> Work[None]:
        """Find the partitions that are led here."""
        for count, named in enumerate(self._session.rotated()):
            if count % _AT_ONCE == _AT_ONCE - 1:
                yield None
            try:
                led = self._lead(named)
            except KafkaError as error:
                self._answers.refuse(named, error)
            else:
                self._led[led.turns] = named, led

    def _lead(self, named: SessionPartition) -> LedSharePartition:
        led = self._share_partitions.lead(self._session.key.group_id, named)
        self._check_access(led)
        return led

    def _check_access(self, led: LedSharePartition) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED unless the member may read the topic, now."""
        topic = led.partition.topic_partition.topic
        if not self._context.may(AclOperation.READ, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _wait(self) -> Work[None]:
        """Wait for records, and try again."""
        waiter = ShareFetchWaiter()
        on_close = self._context.client.on_close

        def end() -> None:
            self._is_over = True
            waiter.wake()

        timer = self._services.timers.schedule(
            self._until_ms - self._services.clock.monotonic_ms(), end
        )
        on_close.append(waiter.leave)
        try:
            for count, (_, led) in enumerate(self._led.values()):
                waiter.join([led.turns])
                led.watch()
                if count % _AT_ONCE == _AT_ONCE - 1:
                    yield None
            yield from self._take(list(self._led), is_last=False)  # what has come meanwhile
            while not self._is_answered:
                yield waiter.woken
                if self._context.client.is_closed:
                    return
                is_last = self._is_over
                due = waiter.take_due()
                is_for_all = is_last or self._request.min_bytes > 1
                yield from self._take(list(self._led) if is_for_all else due, is_last=is_last)
                for turns in due:
                    turns.end_turn(waiter)
                if is_last:
                    return
        finally:
            timer.cancel()
            waiter.leave()
            if waiter.leave in on_close:
                on_close.remove(waiter.leave)

    def _take(self, tried: Iterable[Turns], *, is_last: bool) -> Work[None]:
        """Acquire records of these partitions, if there are enough in all.

        Args:
            is_last: however many there are.
        """
        ready: list[tuple[SessionPartition, LedSharePartition]] = []
        for count, turns in enumerate(tried):
            if count % _AT_ONCE == _AT_ONCE - 1:
                yield None
            if turns not in self._led:
                continue
            named, led = self._led[turns]
            if led.error is not None:
                self._refuse(named, led, led.error)
            elif led.has_records():
                ready.append((named, led))
            elif is_last and led.is_loaded:
                self._answers.of(named)
        if not ready:
            return
        share_bytes = max(1, self._max_bytes // len(ready))
        if not is_last and self._request.min_bytes > 1:
            readable = 0
            for count, (named, led) in enumerate(ready):
                readable += self._readable_bytes(named, led, share_bytes)
                if readable >= self._request.min_bytes:
                    break
                if count % _AT_ONCE == _AT_ONCE - 1:
                    yield None
            else:
                return
        for count, (named, led) in enumerate(ready):
            self._acquire(named, led, share_bytes)
            if count % _AT_ONCE == _AT_ONCE - 1:
                yield None

    def _refuse(self, named: SessionPartition, led: LedSharePartition, error: KafkaError) -> None:
        self._answers.refuse(named, error)
        self._is_refused = True
        self._led.pop(led.turns, None)

    def _readable_bytes(
        self, named: SessionPartition, led: LedSharePartition, max_bytes: int
    ) -> int:
        try:
            return led.readable_bytes(max_bytes)
        except KafkaError as error:
            self._refuse(named, led, error)
            return self._request.min_bytes  # that is answered at once

    def _acquire(self, named: SessionPartition, led: LedSharePartition, max_bytes: int) -> None:
        answers, request = self._answers, self._request
        left = request.max_records - answers.record_count
        if left <= 0:
            return
        demand = Demand(
            self._session.key.member_id,
            left,
            max(1, request.batch_size),
            request.share_acquire_mode == _RECORD_LIMIT,
        )
        hold_bytes = max(0, min(_HOLD_BYTES, self._may_hold - answers.held_bytes))
        try:
            self._check_access(led)  # much may have changed while the fetch waited
            taken = led.take(demand, max_bytes, hold_bytes, min_one_batch=answers.record_bytes == 0)
        except KafkaError as error:
            self._refuse(named, led, error)
        else:
            answers.add(named, taken)
