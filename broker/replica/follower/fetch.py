"""How a follower keeps its logs like those of one leader broker, sans-IO.

Owns, for each partition followed from that leader, where its replication stands, and the fetch
session with the leader. It reads the logs through `ReplicaLog` and never writes: what is to be
done to them comes out as `Append`, `TruncateTo` and `StartAt`, which the shell carries out in their
order before anything else, and reports with `done` or `failed`.

Rules
1. A fetch asks from the log end on and names the latest epoch of the log; the leader answers with
   records, or where the two logs diverge (KIP-101, KIP-279, truncation on fetch as in KIP-595).
   Then the log is truncated to the smaller of the leader's end of that epoch and ours (for one
   that we do not know: to our end of the largest one before it), and the next fetch shows whether
   it goes on.
2. Every partition names the leader epoch that this broker knows (KIP-320). Fenced means that it is
   behind: the partition rests until metadata brings a new epoch. All other errors are tried again,
   after a delay that grows from 10 ms where one side's metadata may be late, else after
   `backoff_ms`.
3. OFFSET_OUT_OF_RANGE: ask the leader for its first and last offset. Its log ends before ours:
   truncate to its end. It starts beyond our end: drop everything and start there. Else fetch again.
4. One request is under way; with `names_changes_at_once` a second one, to name partitions that the
   first does not know, so that they need not wait until a long poll is over. (It is worth it with
   leaders that answer a parked request when the next one comes.) A request that opens a session
   does not wait then, since nothing may follow it. What an answer says of a partition counts if it
   was asked from where the log ends now.
5. A throttled partition that lags is left out while the quota is exceeded, but never one whose
   replica here is in the ISR: producers would wait for it.

Called by `follower/leader_fetcher`, which owns one of these for each leader and calls it without an
await between a read and its write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kraftrio.broker.replica.follower.partition import (
    NEVER_SENT,
    Append,
    Effect,
    FetchState,
    FollowedPartition,
    FollowerFetchSettings,
    FollowerQuota,
    ReplicaLog,
    StartAt,
    TruncateTo,
    Warn,
)
from kraftrio.broker.replica.follower.session import FollowerSession, SessionKey, SessionStep
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    PartitionData,
    ReplicaState,
)
from kraftrio.wire.primitives import TopicPartition

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
_FIRST_DELAY_MS: Final = 10
_HELD_DELAY_MS: Final = 100  # how soon a throttled partition is looked at again

# One side has not got the other's metadata yet: it is a matter of milliseconds.
_BEHIND: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
# What the transfer damaged is right at the leader.
_QUICKLY_AGAIN: Final = _BEHIND | {ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE}
_QUIET_FAILURES: Final = 8  # of those above, but damage, before they are worth a line: a second


class SentFetch(NamedTuple):
    """A request under way."""

    request: FetchRequest
    number: int
    step: SessionStep


class SentOffsets(NamedTuple):
    """Questions for the last and the first offsets of some partitions (rule 3)."""

    latest: ListOffsetsRequest
    earliest: ListOffsetsRequest
    partitions: list[FollowedPartition]


class FollowerFetch:
    """See the module.

    Args:
        is_in_sync: is this broker in the partition's ISR, as far as it knows?
    """

    def __init__(
        self,
        settings: FollowerFetchSettings,
        quota: FollowerQuota,
        is_in_sync: Callable[[TopicPartition], bool],
    ) -> None:
        self._settings = settings
        self._quota = quota
        self._is_in_sync = is_in_sync
        self._partitions: dict[SessionKey, FollowedPartition] = {}
        self._session = FollowerSession()
        self._request_count = 0
        self._in_flight_count = 0
        self._delayed: dict[SessionKey, FollowedPartition] = {}
        self._held: dict[SessionKey, FollowedPartition] = {}
        self._to_reset: dict[SessionKey, FollowedPartition] = {}
        self._paused_until_ms = 0.0
        self._top_level_failures = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def partitions(self) -> Iterable[FollowedPartition]:
        return self._partitions.values()

    # -- what is followed -----------------------------------------------------------------------

    def add(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        leader_epoch: int,
        log: ReplicaLog,
    ) -> list[Effect]:
        """Follow a partition from now on, or in a new leader epoch."""
        partition = FollowedPartition(topic_partition, topic_id, leader_epoch, log)
        key = partition.key
        known = self._partitions.get(key)
        if known is not None:
            if (
                known.leader_epoch == leader_epoch
                and known.log is log
                and known.state is not FetchState.FAILED
            ):
                return []
            self._forget(known)
        self._partitions[key] = partition
        if log.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
            # Records without epochs cannot be compared: only what is committed is sure.
            return [self._truncate(partition, log.high_watermark, "a log without leader epochs")]
        self._session.want(key)
        return []

    def remove(self, topic_id: bytes, partition_index: int) -> bool:
        """Follow a partition no longer; False when it was not followed."""
        partition = self._partitions.get(SessionKey(topic_id, partition_index))
        if partition is None:
            return False
        self._forget(partition)
        self._session.drop(partition.key)
        return True

    def _forget(self, partition: FollowedPartition) -> None:
        key = partition.key
        del self._partitions[key]
        self._delayed.pop(key, None)
        self._held.pop(key, None)
        self._to_reset.pop(key, None)

    def is_followed(self, partition: FollowedPartition) -> bool:
        """Is this still how the partition is followed?"""
        return self._partitions.get(partition.key) is partition

    # -- asking ---------------------------------------------------------------------------------

    def next_fetch(self, now_ms: float, broker_epoch: int) -> SentFetch | None:
        """Give the next request, if there is something to ask and it may be asked now (rule 4)."""
        if self._delayed:
            self._resume_due(now_ms)
        if self._held or self._quota.is_active:
            self._apply_quota()
        session = self._session
        if not len(session) or now_ms < self._paused_until_ms:
            return None
        if self._in_flight_count and not (
            self._settings.names_changes_at_once
            and self._in_flight_count == 1
            and session.has_changes
            and session.may_pipeline
        ):
            return None
        step = session.next_step()
        self._request_count += 1
        self._in_flight_count += 1
        number = self._request_count
        settings = self._settings
        waits = not (settings.names_changes_at_once and step.is_full) or session.is_refused
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=settings.broker_id, replica_epoch=broker_epoch),
            max_wait_ms=settings.max_wait_ms if waits else 0,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=step.session_id,
            session_epoch=step.epoch,
            topics=self._name(step.named, number),
            forgotten_topics_data=_forgotten(step.forgotten) if step.forgotten else [],
        )
        return SentFetch(request, number, step)

    def _name(self, keys: list[SessionKey], number: int) -> list[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        partition_max_bytes = self._settings.partition_max_bytes
        for key in keys:
            partition = self._partitions[key]
            log = partition.log
            if partition.first_sent == NEVER_SENT:
                partition.first_sent = number
            partition.last_sent = number
            partition.sent_offset = log.log_end_offset
            partition.sent_epoch = log.latest_epoch
            partition.sent_start_offset = log.log_start_offset
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = FetchTopic(topic_id=key.topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=key.partition,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=partition.sent_offset,
                    last_fetched_epoch=partition.sent_epoch,
                    log_start_offset=partition.sent_start_offset,
                    partition_max_bytes=partition_max_bytes,
                )
            )
        return list(topics.values())

    def next_offsets(self) -> SentOffsets | None:
        """Give the questions that rule 3 has to ask, to be sent before the next fetch."""
        if not self._to_reset:
            return None
        partitions = list(self._to_reset.values())
        self._to_reset.clear()
        return SentOffsets(
            self._list_offsets(partitions, LATEST_TIMESTAMP),
            self._list_offsets(partitions, EARLIEST_TIMESTAMP),
            partitions,
        )

    def _list_offsets(
        self, partitions: list[FollowedPartition], timestamp: int
    ) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for partition in partitions:
            name, index = partition.topic_partition
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=partition.leader_epoch,
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(replica_id=self._settings.broker_id, topics=list(topics.values()))

    def next_wake_ms(self, now_ms: float) -> float | None:
        """When `next_fetch` may have something that it does not have now; None: not by itself."""
        times = [partition.due_ms for partition in self._delayed.values()]
        if self._held:
            times.append(now_ms + _HELD_DELAY_MS)
        if self._paused_until_ms > now_ms:
            times.append(self._paused_until_ms)
        return min(times, default=None)

    def _resume_due(self, now_ms: float) -> None:
        for partition in list(self._delayed.values()):
            if partition.due_ms <= now_ms:
                del self._delayed[partition.key]
                self._fetch(partition)

    def _apply_quota(self) -> None:
        """Rule 5, for every partition: only clusters that move replicas pay for it."""
        quota = self._quota
        exceeded = quota.is_active and quota.exceeded()
        for partition in self._partitions.values():
            if partition.state is not FetchState.FETCHING:
                continue
            is_held = (
                exceeded
                and (partition.lag is None or partition.lag > 0)
                and quota.is_throttled(partition.topic_partition)
                and not self._is_in_sync(partition.topic_partition)
            )
            if is_held == partition.is_held:
                continue
            partition.is_held = is_held
            if is_held:
                self._held[partition.key] = partition
                self._session.drop(partition.key)
            else:
                del self._held[partition.key]
                self._session.want(partition.key)

    # -- answers --------------------------------------------------------------------------------

    def on_response(self, sent: SentFetch, response: FetchResponse, now_ms: float) -> list[Effect]:
        """Take an answer; gives what is to be done to the logs."""
        self._in_flight_count -= 1
        error = response.error_code
        if not self._session.on_answer(sent.step, error, response.session_id):
            if error is not ErrorCode.NONE:
                self._on_top_level_error(error, now_ms)
            return []
        self._top_level_failures = 0
        effects: list[Effect] = []
        partitions = self._partitions
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                partition = partitions.get(SessionKey(topic_id, data.partition_index))
                if partition is not None and sent.number >= partition.first_sent:
                    effect = self._on_partition(partition, data, sent.number, now_ms)
                    if effect is not None:
                        effects.append(effect)
        return effects

    def _on_top_level_error(self, error: ErrorCode, now_ms: float) -> None:
        """One lost session is nothing; errors without end must not spin."""
        self._top_level_failures += 1
        is_lost_session = error in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        )
        if not is_lost_session or self._top_level_failures > 1:
            self._paused_until_ms = now_ms + self._settings.backoff_ms

    def _on_partition(
        self, partition: FollowedPartition, data: PartitionData, number: int, now_ms: float
    ) -> Effect | None:
        if partition.state is not FetchState.FETCHING:
            return None
        is_current = (
            number >= partition.last_sent and partition.sent_offset == partition.log.log_end_offset
        )
        if data.error_code:
            return self._on_error(partition, data, now_ms) if is_current else None
        if data.diverging_epoch is not None:
            return self._diverge(partition, data.diverging_epoch, now_ms) if is_current else None
        if is_current:
            records = records_view(data.records)
            return Append(partition, records, data.high_watermark, data.log_start_offset)
        if partition.lag is None:
            return None
        # An answer to a request before the last one: its records are here already, but the leader
        # will not send its watermarks again.
        return Append(partition, b"", data.high_watermark, data.log_start_offset)

    def _on_error(
        self, partition: FollowedPartition, data: PartitionData, now_ms: float
    ) -> Effect | None:
        code = data.error_code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._leave_session(partition)
            partition.move(FetchState.RESETTING)
            self._to_reset[partition.key] = partition
            return None
        return self._give_up_or_delay(partition, code, now_ms)

    def _diverge(
        self, partition: FollowedPartition, diverging: FetchEpochEndOffset, now_ms: float
    ) -> Effect | None:
        """Rule 1: find where to truncate."""
        log = partition.log
        if diverging.end_offset < 0:
            return self._give_up_or_delay(partition, ErrorCode.OFFSET_OUT_OF_RANGE, now_ms)
        epoch, end_offset = log.end_offset_for_epoch(diverging.epoch)
        if end_offset < 0:
            offset = diverging.end_offset
        elif epoch == diverging.epoch:
            offset = min(end_offset, diverging.end_offset)
        else:
            offset = end_offset  # and the next fetch asks for that epoch
        return self._truncate(
            partition,
            min(offset, log.log_end_offset),
            f"epoch {log.latest_epoch} is not the leader's, whose epoch {diverging.epoch} "
            f"ends at {diverging.end_offset}",
        )

    def _truncate(self, partition: FollowedPartition, offset: int, reason: str) -> TruncateTo:
        self._leave_session(partition)
        partition.move(FetchState.TRUNCATING)
        return TruncateTo(partition, offset, reason)

    def on_offsets(
        self,
        sent: SentOffsets,
        latest: ListOffsetsResponse,
        earliest: ListOffsetsResponse,
        now_ms: float,
    ) -> list[Effect]:
        """Take the leader's first and last offsets (rule 3)."""
        ends, starts = _offsets(latest), _offsets(earliest)
        effects: list[Effect] = []
        for partition in sent.partitions:
            if not self.is_followed(partition) or partition.state is not FetchState.RESETTING:
                continue
            unknown = (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
            end_code, end_offset = ends.get(partition.topic_partition, unknown)
            start_code, start_offset = starts.get(partition.topic_partition, unknown)
            code = end_code or start_code
            effect: Effect | None
            if code is not ErrorCode.NONE:
                effect = self._give_up_or_delay(partition, code, now_ms)
            else:
                effect = self._reset(partition, start_offset, end_offset, now_ms)
            if effect is not None:
                effects.append(effect)
        return effects

    def _reset(
        self, partition: FollowedPartition, start_offset: int, end_offset: int, now_ms: float
    ) -> Effect | None:
        log_end_offset = partition.log.log_end_offset
        if end_offset < log_end_offset:
            return self._truncate(partition, end_offset, f"the leader's log ends at {end_offset}")
        if start_offset > log_end_offset:
            partition.move(FetchState.TRUNCATING)
            return StartAt(partition, start_offset)
        # The leader has moved on meanwhile, and knows where the logs part.
        return self._delay(partition, ErrorCode.OFFSET_OUT_OF_RANGE, now_ms)

    def on_lost(self) -> None:
        """The connection is gone, and what was under way with it."""
        self._in_flight_count = 0
        self._session.on_lost()
        self._to_reset.clear()
        for partition in self._partitions.values():
            if partition.state is FetchState.RESETTING:
                self._fetch(partition)

    # -- what became of an effect -----------------------------------------------------------------

    def done(self, effect: Append | TruncateTo | StartAt, now_ms: float) -> Warn | None:
        """The shell has done it."""
        partition = effect.partition
        if not self.is_followed(partition):
            return None
        log = partition.log
        if isinstance(effect, Append):
            return self._appended(effect, now_ms)
        partition.lag = None
        reported = (partition.sent_offset, partition.sent_epoch)
        self._fetch(partition)
        if (log.log_end_offset, log.latest_epoch) == reported:
            # The same question would get the same answer, as fast as the network goes.
            return self._give_up_or_delay(partition, ErrorCode.UNKNOWN_SERVER_ERROR, now_ms)
        return None

    def _appended(self, effect: Append, now_ms: float) -> Warn | None:
        partition, records = effect.partition, effect.records
        log = partition.log
        log_end_offset = log.log_end_offset
        if records:
            topic_partition = partition.topic_partition
            if self._quota.is_active and self._quota.is_throttled(topic_partition):
                self._quota.record(len(records))
            if log_end_offset == partition.sent_offset:
                # Only batches of epochs that this node does not know yet.
                return self._delay(partition, ErrorCode.UNKNOWN_LEADER_EPOCH, now_ms)
        partition.lag = max(0, effect.high_watermark - log_end_offset)
        partition.delay_ms = partition.failure_count = 0
        is_news = (
            log_end_offset != partition.sent_offset
            or log.log_start_offset != partition.sent_start_offset
        )
        if is_news and not partition.is_held:
            self._session.want(partition.key)
        return None

    def failed(
        self, effect: Append | TruncateTo | StartAt, code: ErrorCode, now_ms: float
    ) -> Warn | None:
        """The shell could not do it."""
        partition = effect.partition
        if not self.is_followed(partition):
            return None
        return self._give_up_or_delay(partition, code, now_ms)

    # -- moves ----------------------------------------------------------------------------------

    def _fetch(self, partition: FollowedPartition) -> None:
        partition.move(FetchState.FETCHING)
        self._session.want(partition.key)

    def _give_up_or_delay(
        self, partition: FollowedPartition, code: ErrorCode, now_ms: float
    ) -> Warn | None:
        """Rule 2."""
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            self._leave_session(partition)
            partition.move(FetchState.FAILED)
            return Warn(partition, code, gives_up=True)
        return self._delay(partition, code, now_ms)

    def _delay(self, partition: FollowedPartition, code: ErrorCode, now_ms: float) -> Warn | None:
        self._leave_session(partition)
        partition.move(FetchState.DELAYED)
        backoff_ms = self._settings.backoff_ms
        if code in _QUICKLY_AGAIN:
            partition.delay_ms = min(2 * partition.delay_ms or _FIRST_DELAY_MS, backoff_ms)
        else:
            partition.delay_ms = backoff_ms
        partition.due_ms = now_ms + partition.delay_ms
        self._delayed[partition.key] = partition
        partition.failure_count = count = partition.failure_count + 1
        is_expected = code in _QUICKLY_AGAIN and code is not ErrorCode.CORRUPT_MESSAGE
        if (is_expected and count < _QUIET_FAILURES) or count & (count - 1):
            return None  # the more often it happens, the more rarely it is logged
        return Warn(partition, code, gives_up=False)

    def _leave_session(self, partition: FollowedPartition) -> None:
        self._session.drop(partition.key)
        if partition.is_held:
            partition.is_held = False
            del self._held[partition.key]


def _forgotten(keys: list[SessionKey]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[]))
        topic.partitions.append(index)
    return list(topics.values())


def _offsets(response: ListOffsetsResponse) -> dict[TopicPartition, tuple[ErrorCode, int]]:
    return {
        TopicPartition(topic.name, partition.partition_index): (
            partition.error_code,
            partition.offset,
        )
        for topic in response.topics
        for partition in topic.partitions
    }
