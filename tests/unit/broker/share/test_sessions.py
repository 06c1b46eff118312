"""Share sessions: epochs, limits, and which partitions are answered."""

from __future__ import annotations

import pytest

from kraftrio.broker.share.sessions import (
    FINAL_EPOCH,
    SessionPartition,
    ShareSession,
    ShareSessionKey,
    ShareSessions,
)
from kraftrio.wire.errors import ErrorCode, KafkaError

KEY = ShareSessionKey("g1", "m1")
A, B, C = (SessionPartition(b"t" * 16, index) for index in range(3))


def opened(sessions: ShareSessions, member_id: str = "m1") -> ShareSession:
    return sessions.open(ShareSessionKey("g1", member_id), [A, B])


def test_each_request_has_the_next_epoch() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    for epoch in (1, 2, 3):
        assert sessions.use(KEY, epoch) is session
    for epoch in (3, 5):
        with pytest.raises(KafkaError) as caught:
            sessions.use(KEY, epoch)
        assert caught.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.use(KEY, FINAL_EPOCH) is session
    assert sessions.use(KEY, 4) is session


def test_after_the_greatest_epoch_comes_1() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    session.epoch = 0x7FFF_FFFF
    sessions.use(KEY, 0x7FFF_FFFF)
    assert session.epoch == 1


def test_a_session_that_does_not_exist() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert sessions.end(session)
    assert not sessions.end(session)
    for epoch in (1, FINAL_EPOCH):
        with pytest.raises(KafkaError) as caught:
            sessions.use(KEY, epoch)
        assert caught.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.find(KEY) is None


def test_so_many_sessions_and_no_more() -> None:
    sessions = ShareSessions(2)
    first = opened(sessions, "m1")
    opened(sessions, "m2")
    with pytest.raises(KafkaError) as caught:
        opened(sessions, "m3")
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.end(first)
    opened(sessions, "m3")
    assert len(sessions) == 2


def test_a_group_is_there_as_long_as_a_member_is() -> None:
    sessions = ShareSessions(10)
    first, second = opened(sessions, "m1"), opened(sessions, "m2")
    sessions.end(first)
    assert sessions.has_group("g1")
    sessions.end(second)
    assert not sessions.has_group("g1")


def test_what_was_added_or_wrong_is_answered_in_any_case() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    sessions.change(session, [A, C], [B])
    assert list(session.partitions) == [A, C]
    assert not session.note_answer(A, has_data=False, is_error=False)
    assert session.note_answer(A, has_data=True, is_error=False)
    assert session.note_answer(C, has_data=False, is_error=False)
    assert not session.note_answer(C, has_data=False, is_error=False)
    assert session.note_answer(C, has_data=False, is_error=True)
    assert session.note_answer(C, has_data=False, is_error=False)
    assert not session.note_answer(C, has_data=False, is_error=False)


def test_each_partition_comes_first_in_its_turn() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    firsts = []
    for epoch in (1, 2, 3):
        sessions.use(KEY, epoch)
        firsts.append(next(iter(session.rotated())))
    assert firsts == [B, A, B]
    assert list(ShareSession(KEY).rotated()) == []
