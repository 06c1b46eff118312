"""What a follower asks for, and what it makes of the answers; truncation has its own tests."""

from __future__ import annotations

import pytest

from kraftrio.broker.replica.follower.fetch import FollowerFetch
from kraftrio.broker.replica.follower.leader_fetcher import NoQuota
from kraftrio.broker.replica.follower.partition import (
    MOVES,
    Append,
    FetchState,
    FollowedPartition,
    Warn,
)
from kraftrio.broker.replica.follower.session import SessionKey
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import TOPIC_ID, TOPIC_PARTITION
from tests.unit.broker.replica.follower.follower_context import (
    BROKER_EPOCH,
    SETTINGS,
    Follower,
    Leader,
    Replica,
)

KEY = SessionKey(TOPIC_ID, 0)
OTHER_ID = b"2" * 16
OTHER = TopicPartition("other", 3)


def started(*values: bytes) -> tuple[Replica, Follower, Leader]:
    """A leader with these values, and a follower that has just begun."""
    leader = Replica()
    leader.lead(4)
    leader.write(*values)
    follower = Follower(Replica())
    follower.follow(4)
    return leader, follower, Leader.of(leader)


# -- requests


def test_a_request_carries_the_log_and_the_settings() -> None:
    """Log end, latest epoch, leader epoch, log start; who asks in which life."""
    replica = Replica()
    replica.lead(2)
    replica.write(b"a", b"b")
    replica.commit()
    replica.log.delete_records_before(1)
    follower = Follower(replica)
    follower.follow(5)
    sent = follower.ask()
    assert sent is not None
    request = sent.request
    assert request.topics == [
        FetchTopic(
            topic_id=TOPIC_ID,
            partitions=[
                FetchPartition(
                    partition=0,
                    current_leader_epoch=5,
                    fetch_offset=2,
                    last_fetched_epoch=2,
                    log_start_offset=1,
                    partition_max_bytes=SETTINGS.partition_max_bytes,
                )
            ],
        )
    ]
    assert request.replica_state == ReplicaState(replica_id=9, replica_epoch=BROKER_EPOCH)
    assert (request.min_bytes, request.max_bytes) == (1, 10 << 20)
    assert (request.session_id, request.session_epoch) == (0, 0)


@pytest.mark.parametrize(("grants", "waits"), [(True, [0, 500, 500]), (False, [0, 500, 500])])
def test_opening_a_session_does_not_wait(grants: bool, waits: list[int]) -> None:
    """Or nothing could be answered meanwhile; but without a session in the end it must not spin."""
    _, follower, source = started(b"a")
    source.grants_sessions = grants
    for wait_ms in waits:
        sent = follower.ask()
        assert sent is not None
        assert sent.request.max_wait_ms == wait_ms
        follower.take(sent, source.fetch(sent.request))


def test_only_what_moved_is_named_again() -> None:
    """A round with records names the partition, one without names nothing."""
    leader, follower, source = started(b"a")
    follower.round(source)
    follower.round(source)
    assert source.fetched_keys == [KEY]
    follower.round(source)
    assert source.fetched_keys == []
    leader.write(b"b")
    follower.round(source)
    follower.round(source)
    assert source.fetched_keys == [KEY]


def test_topics_are_grouped_and_dropped_by_id() -> None:
    _, follower, source = started()
    core = follower.core
    other = Replica()
    for index in (3, 4):
        core.add(TopicPartition("other", index), OTHER_ID, 4, other.log)
        source.logs[SessionKey(OTHER_ID, index)] = other.log
    sent = follower.ask()
    assert sent is not None
    named = [(t.topic_id, [p.partition for p in t.partitions]) for t in sent.request.topics]
    assert named == [(TOPIC_ID, [0]), (OTHER_ID, [3, 4])]
    follower.take(sent, source.fetch(sent.request))
    assert core.remove(OTHER_ID, 3)
    assert not core.remove(OTHER_ID, 7)
    sent = follower.ask()
    assert sent is not None
    assert sent.request.forgotten_topics_data == [ForgottenTopic(topic_id=OTHER_ID, partitions=[3])]


def test_nothing_is_asked_when_nothing_is_followed() -> None:
    core = FollowerFetch(SETTINGS, NoQuota(), lambda _: False)
    assert core.next_fetch(0, 1) is None
    assert core.next_wake_ms(0) is None


def test_following_again_in_the_same_epoch_changes_nothing() -> None:
    _, follower, source = started(b"a")
    follower.catch_up(source)
    (before,) = follower.core.partitions()
    follower.follow(4)
    assert list(follower.core.partitions()) == [before]


# -- one request, and a second one for news


def test_the_next_request_waits_for_the_answer() -> None:
    _, follower, _ = started(b"a")
    assert follower.ask() is not None
    assert follower.ask() is None


def test_a_second_request_adds_a_new_partition() -> None:
    """Only of what the first does not know, only once there is a session, and no third."""
    _, follower, source = started(b"a")
    first = follower.ask()
    assert first is not None
    follower.core.add(OTHER, OTHER_ID, 1, Replica().log)
    assert follower.ask() is None, "the session is not granted yet"
    follower.take(first, source.fetch(first.request))
    second = follower.ask()
    assert second is not None
    follower.core.add(TopicPartition("third", 0), b"3" * 16, 1, Replica().log)
    third = follower.ask()
    assert third is not None
    assert [topic.topic_id for topic in third.request.topics] == [b"3" * 16]
    assert third.request.session_epoch == second.request.session_epoch + 1
    follower.core.add(TopicPartition("fourth", 0), b"4" * 16, 1, Replica().log)
    assert follower.ask() is None


def test_a_repeated_answer_is_not_appended_twice() -> None:
    """The answers to two requests bring the same records: the second brings the watermark alone."""
    leader, follower, source = started()
    follower.catch_up(source)
    leader.write(b"a", b"b")
    first = follower.ask()
    follower.core.add(OTHER, OTHER_ID, 4, Replica().log)
    second = follower.ask()
    assert first is not None
    assert second is not None
    answers = [source.fetch(first.request), source.fetch(second.request)]
    leader.commit()
    follower.take(first, answers[0])
    third = follower.ask()
    assert third is not None, "the log has moved: the leader has to know"
    answers[1].responses[0].partitions[0].high_watermark = 2
    follower.take(second, answers[1])
    assert follower.replica.values() == [b"a", b"b"]
    assert follower.log.high_watermark == 2


def test_an_answer_of_an_earlier_leader_epoch_is_dropped() -> None:
    """What was asked before the new epoch does not count, whatever it says."""
    leader, follower, source = started()
    follower.catch_up(source)
    leader.write(b"a")
    sent = follower.ask()
    assert sent is not None
    response = source.fetch(sent.request)
    follower.follow(5)
    assert follower.core.on_response(sent, response, 0) == []


def test_an_answer_about_what_is_not_followed_any_more_is_dropped() -> None:
    _, follower, source = started(b"a")
    sent = follower.ask()
    assert sent is not None
    follower.core.remove(TOPIC_ID, 0)
    assert follower.core.on_response(sent, source.fetch(sent.request), 0) == []


def test_a_lost_connection_begins_a_full_session() -> None:
    _, follower, source = started(b"a")
    follower.catch_up(source)
    assert follower.ask() is not None
    follower.core.on_lost()
    sent = follower.ask()
    assert sent is not None
    assert sent.request.session_epoch == 0
    assert sent.request.topics[0].partitions[0].fetch_offset == 1


def test_a_lost_connection_while_asking_for_offsets_fetches_again() -> None:
    _, follower, source = started(b"a")
    source.errors[KEY] = ErrorCode.OFFSET_OUT_OF_RANGE
    follower.round(source)
    assert follower.core.next_offsets() is not None
    follower.core.on_lost()
    assert follower.state() == "FETCHING"


# -- sessions


def test_a_lost_session_is_opened_again_at_once() -> None:
    leader, follower, source = started(b"a")
    follower.catch_up(source)
    source.sessions.clear()
    follower.round(source)
    leader.write(b"b")
    follower.catch_up(source)
    assert source.fetched_keys == [KEY]


def test_errors_without_end_do_not_spin() -> None:
    """The second in a row waits for the backoff."""
    _, follower, _ = started(b"a")
    for _ in range(2):
        sent = follower.ask()
        assert sent is not None
        follower.take(sent, FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert follower.ask() is None
    assert follower.core.next_wake_ms(0) == SETTINGS.backoff_ms
    follower.now_ms += SETTINGS.backoff_ms
    assert follower.ask() is not None


def test_any_other_error_waits_at_once() -> None:
    _, follower, source = started(b"a")
    sent = follower.ask()
    assert sent is not None
    follower.take(sent, FetchResponse(error_code=ErrorCode.of_peer(999)))  # a code of the future
    assert follower.ask() is None
    follower.now_ms += SETTINGS.backoff_ms
    follower.catch_up(source)


# -- errors of a partition


@pytest.mark.parametrize(
    ("code", "delay_ms", "is_logged"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 10, False),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 10, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, 10, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 10, False),
        (ErrorCode.INCONSISTENT_TOPIC_ID, 10, False),
        (ErrorCode.CORRUPT_MESSAGE, 10, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, 1000, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1000, True),
    ],
)
def test_errors_delay(code: ErrorCode, delay_ms: int, is_logged: bool) -> None:
    """Shortly where it is a matter of metadata on its way, else by the backoff."""
    _, follower, source = started(b"a")
    source.errors[KEY] = code
    follower.round(source)
    assert follower.state() == "DELAYED"
    assert follower.core.next_wake_ms(0) == delay_ms
    assert [type(effect) for effect in follower.done] == [Warn] * is_logged
    source.errors.clear()
    assert not follower.round(source)
    follower.now_ms += delay_ms
    follower.catch_up(source)


def test_delays_grow_and_are_logged_ever_more_rarely() -> None:
    """10 ms and doubled up to the backoff; logged when it is no matter of milliseconds any more."""
    _, follower, source = started(b"a")
    source.errors[KEY] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    delays, logged_at = [], []
    for count in range(1, 40):
        follower.round(source)
        wake_ms = follower.core.next_wake_ms(follower.now_ms)
        assert wake_ms is not None
        delays.append(wake_ms - follower.now_ms)
        if follower.done:
            logged_at.append(count)
            follower.done.clear()
        follower.now_ms = wake_ms
    assert delays[:9] == [10, 20, 40, 80, 160, 320, 640, 1000, 1000]
    assert logged_at == [8, 16, 32]
    source.errors.clear()
    follower.catch_up(source)
    source.errors[KEY] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    follower.round(source)
    assert follower.core.next_wake_ms(follower.now_ms) == follower.now_ms + 10


def test_one_partition_in_trouble_delays_no_other() -> None:
    leader, follower, source = started(b"a")
    other = Replica()
    follower.core.add(OTHER, OTHER_ID, 4, other.log)
    follower.round(source)  # the leader does not know the other
    assert follower.log.log_end_offset == 1
    leader.write(b"b")
    follower.round(source)
    follower.round(source)
    assert follower.log.log_end_offset == 2
    sent = follower.ask()
    assert sent is not None
    assert not sent.request.topics, "the delayed one was forgotten, not asked"


@pytest.mark.parametrize(
    ("code", "delay_ms"),
    [
        (ErrorCode.CORRUPT_MESSAGE, 10),
        (ErrorCode.KAFKA_STORAGE_ERROR, 1000),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1000),
    ],
)
def test_a_failed_append_is_fetched_again(code: ErrorCode, delay_ms: int) -> None:
    _, follower, source = started(b"a")
    follower.fail_with = code
    follower.round(source)
    assert follower.state() == "DELAYED"
    assert follower.core.next_wake_ms(0) == delay_ms
    assert follower.done == [Warn(next(iter(follower.core.partitions())), code, False)]
    follower.now_ms += delay_ms
    follower.catch_up(source)


def test_damage_on_the_way_is_noticed_and_fetched_again() -> None:
    """The checksum decides; the log is as before."""
    _, follower, source = started(b"a")
    sent = follower.ask()
    assert sent is not None
    response = source.fetch(sent.request)
    damaged = bytearray(response.responses[0].partitions[0].records)  # type: ignore[arg-type]
    damaged[-1] ^= 1
    response.responses[0].partitions[0].records = memoryview(damaged)
    follower.take(sent, response)
    assert follower.log.log_end_offset == 0
    follower.now_ms += 10
    follower.catch_up(source)
    assert follower.replica.values() == [b"a"]


def test_an_effect_on_what_is_not_followed_any_more_changes_nothing() -> None:
    """The shell may learn in the middle of an answer that a partition has moved."""
    _, follower, source = started(b"a")
    sent = follower.ask()
    assert sent is not None
    (effect,) = follower.core.on_response(sent, source.fetch(sent.request), 0)
    assert isinstance(effect, Append)
    follower.core.remove(TOPIC_ID, 0)
    assert follower.core.done(effect, 0) is None
    assert follower.core.failed(effect, ErrorCode.KAFKA_STORAGE_ERROR, 0) is None
    assert follower.ask() is None


# -- states


def test_states_move_by_the_table() -> None:
    """A move that is not in the table is a bug of ours."""
    assert set(MOVES) == set(FetchState)
    for before in FetchState:
        for after in FetchState:
            partition = FollowedPartition(TOPIC_PARTITION, TOPIC_ID, 1, Replica().log)
            partition.state = before
            if after in MOVES[before]:
                partition.move(after)
                assert partition.state is after
            else:
                with pytest.raises(AssertionError):
                    partition.move(after)


# -- quota


class Quota:
    """A throttle that a test turns on and off."""

    def __init__(self) -> None:
        self.is_active = True
        self.is_exceeded = True
        self.recorded = 0

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return topic_partition == TOPIC_PARTITION

    def exceeded(self) -> bool:
        return self.is_exceeded

    def record(self, size_bytes: int) -> None:
        self.recorded += size_bytes


def throttled() -> tuple[Quota, Replica, Follower, Leader]:
    leader = Replica()
    leader.lead(4)
    leader.write(b"a")
    quota = Quota()
    follower = Follower(Replica(), quota)
    follower.follow(4)
    return quota, leader, follower, Leader.of(leader)


def test_a_throttled_replica_waits_while_the_quota_is_exceeded() -> None:
    """It is looked at again from time to time, and what it gets is counted."""
    quota, leader, follower, source = throttled()
    assert follower.ask() is None
    assert follower.core.next_wake_ms(50) == 150
    quota.is_exceeded = False
    follower.catch_up(source)
    assert quota.recorded == len(leader.image())
    assert follower.core.next_wake_ms(50) is None


def test_a_replica_that_has_caught_up_is_not_held_back() -> None:
    """A throttle must not push it out of the ISR."""
    quota, leader, follower, source = throttled()
    quota.is_exceeded = False
    leader.commit()
    follower.catch_up(source)
    quota.is_exceeded = True
    leader.write(b"b")
    follower.round(source)
    assert follower.log.log_end_offset == 2


def test_a_member_of_the_isr_is_never_held_back() -> None:
    """Producers wait for it; in a new leader epoch it does not know yet how far it is behind."""
    _, leader, follower, source = throttled()
    follower.is_in_sync = True
    assert follower.ask() is not None
    follower = Follower(Replica(), Quota())
    follower.follow(4)
    assert follower.ask() is None
    follower.is_in_sync = True
    follower.catch_up(source)
    assert follower.log.log_end_offset == leader.log.log_end_offset


def test_others_are_fetched_meanwhile() -> None:
    """A replica that is held back leaves the session, and comes back to it."""
    quota, _, follower, source = throttled()
    quota.is_exceeded = False
    sent = follower.ask()
    assert sent is not None
    quota.is_exceeded = True
    response = source.fetch(sent.request)
    response.responses[0].partitions[0].high_watermark = 5  # it lags
    follower.core.add(OTHER, OTHER_ID, 1, Replica().log)
    follower.take(sent, response)
    sent = follower.ask()
    assert sent is not None
    assert [topic.topic_id for topic in sent.request.topics] == [OTHER_ID]
    assert [topic.topic_id for topic in sent.request.forgotten_topics_data] == [TOPIC_ID]
    follower.take(sent, FetchResponse(session_id=sent.request.session_id))
    quota.is_active = False
    sent = follower.ask()
    assert sent is not None
    assert [topic.topic_id for topic in sent.request.topics] == [TOPIC_ID]
