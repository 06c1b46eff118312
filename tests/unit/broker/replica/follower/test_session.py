"""The follower's half of a fetch session (KIP-227)."""

from __future__ import annotations

from random import Random

import pytest

from kraftrio.broker.replica.follower.session import FollowerSession, SessionKey, SessionStep
from kraftrio.wire.errors import ErrorCode

A, B, C = (SessionKey(b"1" * 16, index) for index in range(3))


def opened(*keys: SessionKey) -> FollowerSession:
    """A session with id 5 that the leader has granted."""
    session = FollowerSession()
    for key in keys:
        session.want(key)
    assert session.on_answer(session.next_step(), ErrorCode.NONE, 5)
    return session


def what(step: SessionStep) -> tuple[int, int, list[SessionKey], list[SessionKey]]:
    return step.session_id, step.epoch, step.named, step.forgotten


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    session = FollowerSession()
    session.want(A)
    session.want(B)
    assert what(session.next_step()) == (0, 0, [A, B], [])


def test_later_requests_name_what_changed() -> None:
    """Nothing, an addition, a change and a removal; epochs count up."""
    session = opened(A, B)
    assert what(session.next_step()) == (5, 1, [], [])
    session.want(C)
    session.want(A)
    assert what(session.next_step()) == (5, 2, [C, A], [])
    session.drop(B)
    assert what(session.next_step()) == (5, 3, [], [B])
    assert what(session.next_step()) == (5, 4, [], [])


def test_what_leaves_and_returns_between_two_requests_is_a_change() -> None:
    session = opened(A)
    session.drop(A)
    session.want(A)
    assert what(session.next_step()) == (5, 1, [A], [])


def test_what_comes_and_goes_between_two_requests_is_never_named() -> None:
    session = opened(A)
    session.want(B)
    session.drop(B)
    assert what(session.next_step()) == (5, 1, [], [])


def test_without_a_granted_session_every_request_is_full() -> None:
    session = FollowerSession()
    session.want(A)
    for _ in range(2):
        step = session.next_step()
        assert what(step) == (0, 0, [A], [])
        assert session.on_answer(step, ErrorCode.NONE, 0)


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 5),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 5),
    ],
)
def test_errors_start_over(error: ErrorCode, session_id: int) -> None:
    """And close what the leader may still have."""
    session = opened(A, B)
    session.drop(B)
    assert not session.on_answer(session.next_step(), error, 0)
    assert what(session.next_step()) == (session_id, 0, [A], [])


def test_a_lost_connection_starts_over() -> None:
    session = opened(A)
    session.next_step()
    session.on_lost()
    assert what(session.next_step()) == (5, 0, [A], [])


def test_an_answer_that_closes_the_session_counts() -> None:
    """Its partitions are valid, but the next request is full."""
    session = opened(A)
    assert session.on_answer(session.next_step(), ErrorCode.NONE, 0)
    assert what(session.next_step()) == (0, 0, [A], [])


def test_answers_to_an_earlier_session_are_void() -> None:
    """Two were under way when the session ended; the second one must not end the new one."""
    session = opened(A)
    first, second = session.next_step(), session.next_step()
    assert not session.on_answer(first, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    full = session.next_step()
    assert not session.on_answer(second, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert session.on_answer(full, ErrorCode.NONE, 6)
    assert what(session.next_step()) == (6, 1, [], [])


def test_nothing_follows_a_request_for_a_session_before_its_answer() -> None:
    session = FollowerSession()
    session.want(A)
    assert not session.may_pipeline
    step = session.next_step()
    assert not session.may_pipeline
    session.on_answer(step, ErrorCode.NONE, 5)
    assert session.may_pipeline


def test_the_epoch_wraps_to_one() -> None:
    """0 would ask for a new session."""
    session = opened(A)
    session._epoch = 2**31 - 1
    assert session.next_step().epoch == 2**31 - 1
    assert session.next_step().epoch == 1


@pytest.mark.parametrize("seed", range(50))
def test_the_leader_always_knows_what_is_wanted(seed: int) -> None:
    """Whatever comes, goes, fails and is lost: after each request both sides agree."""
    rng = Random(seed)
    keys = [SessionKey(bytes([topic]) * 16, index) for topic in range(2) for index in range(3)]
    session = FollowerSession()
    wanted: set[SessionKey] = set()
    sent: set[SessionKey] = set()
    for _ in range(200):
        key = rng.choice(keys)
        if rng.random() < 0.5:
            session.want(key)
            wanted.add(key)
        else:
            session.drop(key)
            wanted.discard(key)
        if rng.random() < 0.1:
            session.on_lost()
        if rng.random() < 0.5:
            step = session.next_step()
            sent = (set() if step.is_full else sent) | set(step.named)
            assert set(step.forgotten) <= sent
            sent -= set(step.forgotten)
            assert sent == wanted
            if rng.random() < 0.2:
                session.on_answer(step, ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
            else:
                session.on_answer(step, ErrorCode.NONE, rng.choice([0, 5]) if step.is_full else 5)
