"""A vocabulary for tests of followers: logs in memory, one of them the leader's, and their fetches.

`Replica` is a log on its own file system. `Leader` answers requests from a replica's log by
Kafka's rules, with sessions, as an independent model of what the broker's handlers do. `Follower`
drives `FollowerFetch` and does to its log what the replica manager would.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftrio.broker.log.partition.partition_log import AppendOrigin, PartitionLog
from kraftrio.broker.replica.follower.fetch import FollowerFetch, SentFetch
from kraftrio.broker.replica.follower.leader_fetcher import NoQuota
from kraftrio.broker.replica.follower.partition import (
    Append,
    Effect,
    FollowerFetchSettings,
    StartAt,
    TruncateTo,
    Warn,
)
from kraftrio.broker.replica.follower.session import SessionKey
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.data import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    PartitionData,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import iter_headers, iter_records
from tests.support.logs import NOW_MS, TOPIC_ID, TOPIC_PARTITION, LogContext, batch

SETTINGS = FollowerFetchSettings(
    broker_id=9,
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=10 << 20,
    partition_max_bytes=1 << 20,
    backoff_ms=1000,
    names_changes_at_once=True,
)
BROKER_EPOCH = 77


class Replica(LogContext):
    """One replica's log."""

    def lead(self, epoch: int) -> None:
        """Become leader in an epoch."""
        self.leader_epoch = epoch
        self.log.start_leader_epoch(epoch)

    def write(self, *values: bytes) -> None:
        """Append as leader: a batch for each value."""
        for value in values:
            self.log.append_as_leader(
                batch(value), self.leader_epoch, NOW_MS, origin=AppendOrigin.COORDINATOR
            )

    def data(self) -> list[tuple[int, int, bytes | None]]:
        """(offset, leader epoch, value) of every record."""
        image = self.image()
        return [
            (record.offset, header.partition_leader_epoch, record.value)
            for header in iter_headers(image)
            for record in iter_records(image, header)
        ]

    def image(self) -> bytes:
        """Every byte of the log."""
        log, found = self.log, bytearray()
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            read = log.read(offset, 1 << 20, max_offset=end, min_one_batch=True)
            found += read.records
            offset = read.next_offset
        return bytes(found)


@dataclass
class Leader:
    """Answers for one or more partitions; errors can be planned."""

    logs: dict[SessionKey, PartitionLog]
    epoch: int
    names: dict[SessionKey, TopicPartition] = field(default_factory=dict)
    errors: dict[SessionKey, ErrorCode] = field(default_factory=dict)
    sessions: dict[int, dict[SessionKey, FetchPartition]] = field(default_factory=dict)
    session_epochs: dict[int, int] = field(default_factory=dict)
    answered: dict[SessionKey, tuple[int, int]] = field(default_factory=dict)
    grants_sessions: bool = True
    fetched_keys: list[SessionKey] = field(default_factory=list)  # named by the last request
    max_bytes: int = 1 << 20
    next_session_id: int = 100

    @classmethod
    def of(cls, replica: Replica, epoch: int | None = None) -> Leader:
        key = SessionKey(TOPIC_ID, 0)
        return cls(
            {key: replica.log},
            replica.leader_epoch if epoch is None else epoch,
            {key: TOPIC_PARTITION},
        )

    def fetch(self, request: FetchRequest) -> FetchResponse:
        """Answer at once, also with nothing."""
        asked = {
            SessionKey(topic.topic_id, partition.partition): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        self.fetched_keys = list(asked)
        forgotten = [
            SessionKey(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        session_id = request.session_id
        is_full = request.session_epoch == 0
        if is_full:
            self.sessions.pop(session_id, None)
            session_id = 0
            if self.grants_sessions:
                session_id = self.next_session_id = self.next_session_id + 1
                self.sessions[session_id] = asked
                self.session_epochs[session_id] = 1
            self.answered.clear()
            wanted = asked
        else:
            known = self.sessions.get(session_id)
            if known is None:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if self.session_epochs[session_id] != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            self.session_epochs[session_id] += 1
            known.update(asked)
            for key in forgotten:
                del known[key]
            wanted = known
        topics: dict[bytes, FetchableTopicResponse] = {}
        for key, partition in wanted.items():
            data = self._read(key, partition)
            news = (data.high_watermark, data.log_start_offset)
            has_news = data.records or data.error_code or data.diverging_epoch is not None
            if not is_full and not has_news and self.answered.get(key) == news:
                continue
            if not data.error_code:
                self.answered[key] = news
            topic = topics.setdefault(
                key.topic_id, FetchableTopicResponse(topic_id=key.topic_id, partitions=[])
            )
            topic.partitions.append(data)
        return FetchResponse(session_id=session_id, responses=list(topics.values()))

    def _read(self, key: SessionKey, asked: FetchPartition) -> PartitionData:
        data = PartitionData(
            partition_index=key.partition, high_watermark=-1, records=memoryview(b"")
        )
        log = self.logs.get(key)
        code = self.errors.get(key, ErrorCode.NONE)
        if log is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not code and asked.current_leader_epoch != self.epoch:
            is_old = asked.current_leader_epoch < self.epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        if code is not ErrorCode.NONE:
            data.error_code = code
            return data
        assert log is not None
        if asked.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if end_offset < 0 or asked.fetch_offset < log.log_start_offset:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return data
            if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
                data.diverging_epoch = FetchEpochEndOffset(epoch=epoch, end_offset=end_offset)
                return data
        try:
            read = log.read(
                asked.fetch_offset,
                self.max_bytes,
                max_offset=log.log_end_offset,
                min_one_batch=True,
            )
        except KafkaError as error:
            data.error_code = error.code
            return data
        data.records = memoryview(bytes(read.records))
        data.high_watermark = log.high_watermark
        data.log_start_offset = log.log_start_offset
        return data

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Answer for the first (-2) or last (-1) offset."""
        by_name = {name: key for key, name in self.names.items()}
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                key = by_name[TopicPartition(topic.name, asked.partition_index)]
                log = self.logs[key]
                first = asked.timestamp == -2
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=self.errors.get(key, ErrorCode.NONE),
                        offset=log.log_start_offset if first else log.log_end_offset,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)


class Follower:
    """The core with one replica's log, and the hands that the shell is in production."""

    def __init__(self, replica: Replica, quota: object | None = None) -> None:
        self.replica = replica
        self.is_in_sync = False
        self.core = FollowerFetch(
            SETTINGS,
            quota or NoQuota(),  # type: ignore[arg-type]
            lambda _: self.is_in_sync,
        )
        self.now_ms = 0.0
        self.done: list[Effect] = []  # everything but appends
        self.fail_with: ErrorCode | None = None

    @property
    def log(self) -> PartitionLog:
        return self.replica.log

    def follow(self, epoch: int) -> None:
        self.carry_out(self.core.add(TOPIC_PARTITION, TOPIC_ID, epoch, self.log))

    def ask(self) -> SentFetch | None:
        return self.core.next_fetch(self.now_ms, BROKER_EPOCH)

    def round(self, leader: Leader) -> bool:
        """Ask once and take the answer; False when there was nothing to ask."""
        offsets = self.core.next_offsets()
        if offsets is not None:
            ends = leader.list_offsets(offsets.latest)
            starts = leader.list_offsets(offsets.earliest)
            self.carry_out(self.core.on_offsets(offsets, ends, starts, self.now_ms))
        sent = self.ask()
        if sent is None:
            return offsets is not None
        self.take(sent, leader.fetch(sent.request))
        return True

    def take(self, sent: SentFetch, response: FetchResponse) -> None:
        self.carry_out(self.core.on_response(sent, response, self.now_ms))

    def catch_up(self, leader: Leader, rounds: int = 50) -> int:
        """Go on until the log's end is the leader's, and one round more (for the watermark)."""
        leader_log = next(iter(leader.logs.values()))
        for count in range(rounds):
            wake_ms = self.core.next_wake_ms(self.now_ms)
            if not self.round(leader) and wake_ms is not None:
                self.now_ms = wake_ms
            if (
                self.log.log_end_offset == leader_log.log_end_offset
                and self.log.log_start_offset >= leader_log.log_start_offset
                and all(p.lag is not None for p in self.core.partitions())
            ):
                self.round(leader)
                return count + 1
        raise AssertionError(f"not caught up: {self.log} {list(self.core.partitions())}")

    def carry_out(self, effects: Iterable[Effect | None]) -> None:
        for effect in effects:
            if effect is None:
                continue
            if not isinstance(effect, Append):
                self.done.append(effect)
            if isinstance(effect, Warn):
                continue
            if self.fail_with is not None:
                code, self.fail_with = self.fail_with, None
                self.carry_out([self.core.failed(effect, code, self.now_ms)])
                continue
            try:
                self._do(effect)
            except KafkaError as error:
                self.carry_out([self.core.failed(effect, error.code, self.now_ms)])
            else:
                self.carry_out([self.core.done(effect, self.now_ms)])

    def _do(self, effect: Effect) -> None:
        log = self.log
        if isinstance(effect, Append):
            if effect.records:
                epoch = effect.partition.leader_epoch
                log.append_as_follower(effect.records, NOW_MS, leader_epoch=epoch)
            end_offset = min(effect.high_watermark, log.log_end_offset)
            log.update_high_watermark(max(log.high_watermark, end_offset))
            if effect.log_start_offset > log.log_start_offset:
                log.delete_records_before(min(effect.log_start_offset, log.high_watermark))
        elif isinstance(effect, TruncateTo):
            log.truncate_to(effect.offset)
        elif isinstance(effect, StartAt):
            log.truncate_fully_and_start_at(effect.offset, NOW_MS)

    def state(self) -> str:
        (partition,) = self.core.partitions()
        return partition.state.name
