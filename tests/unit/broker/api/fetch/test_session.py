"""Incremental fetch sessions (KIP-227)."""

from __future__ import annotations

import random

import pytest

from kraftrio.broker.api.fetch.session import FetchKey, FetchPart, FetchPlan, FetchSessions
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ZERO_UUID


def key(index: int, topic: str = "t") -> FetchKey:
    return FetchKey(ZERO_UUID, topic, index)


def parts(*indexes: int, offset: int = 0) -> dict[FetchKey, FetchPart]:
    return {key(index): FetchPart(offset, 1000) for index in indexes}


class Sessions:
    """A session cache with the vocabulary of a client."""

    def __init__(self, max_sessions: int = 2) -> None:
        self.sessions = FetchSessions(max_sessions, random.Random(1), eviction_ms=1000)
        self.now_ms = 0.0

    def fetch(
        self,
        session_id: int,
        epoch: int,
        wanted: dict[FetchKey, FetchPart] | None = None,
        forget: list[FetchKey] | None = None,
        by_id: bool = False,
    ) -> FetchPlan:
        return self.sessions.plan(
            session_id, epoch, wanted or {}, forget or [], uses_topic_ids=by_id, now_ms=self.now_ms
        )

    def open(self, *indexes: int) -> int:
        plan = self.fetch(0, 0, parts(*indexes))
        assert plan.session_id > 0
        return plan.session_id


def asked(plan: FetchPlan) -> list[int]:
    return [each.partition for each, _ in plan.partitions()]


def note_news(plan: FetchPlan, part: FetchPart, has_records: bool = False, error: int = 0) -> bool:
    return plan.note_change(
        part,
        has_records=has_records,
        error=error,
        high_watermark=10,
        last_stable_offset=10,
        log_start_offset=0,
    )


def test_full_fetch_opens_a_session_and_answers_everything() -> None:
    plan = Sessions().fetch(0, 0, parts(0, 1))
    assert plan.error is ErrorCode.NONE
    assert asked(plan) == [0, 1]
    assert not plan.incremental
    assert all(note_news(plan, part) for _, part in plan.partitions())


def test_incremental_fetch_reads_all_partitions_and_answers_only_news() -> None:
    context = Sessions()
    first = context.fetch(0, 0, parts(0, 1))
    for _, part in first.partitions():
        note_news(first, part)
    plan = context.fetch(first.session_id, 1)
    assert asked(plan) == [0, 1]
    assert plan.incremental
    quiet, busy = [part for _, part in plan.partitions()]
    assert not note_news(plan, quiet)
    assert note_news(plan, busy, has_records=True)


def test_errors_are_repeated_in_every_answer_until_they_are_over() -> None:
    context = Sessions()
    session_id = context.open(0)
    for epoch in (1, 2):
        plan = context.fetch(session_id, epoch)
        part = next(part for _, part in plan.partitions())
        assert note_news(plan, part, error=ErrorCode.UNKNOWN_TOPIC_ID)
    plan = context.fetch(session_id, 3)
    assert note_news(plan, part), "the first answer without the error is news too"


def test_changed_and_forgotten_partitions() -> None:
    context = Sessions()
    session_id = context.open(0, 1)
    plan = context.fetch(session_id, 1, parts(2, offset=5), forget=[key(0)])
    assert asked(plan) == [1, 2]
    plan = context.fetch(session_id, 2, parts(1, offset=9))
    assert {each.partition: part.fetch_offset for each, part in plan.partitions()} == {1: 9, 2: 5}


def test_an_incremental_fetch_that_changes_only_the_leader_epoch_is_remembered() -> None:
    context = Sessions()
    session_id = context.open(0)
    context.fetch(session_id, 1, {key(0): FetchPart(0, 1000, current_leader_epoch=7)})
    plan = context.fetch(session_id, 2)
    assert [part.current_leader_epoch for _, part in plan.partitions()] == [7]


def test_a_follower_in_a_new_epoch_gets_the_high_watermark_again() -> None:
    """It dropped what it was sent in the epoch before: the high watermark would stay unknown."""
    sessions = Sessions()
    session_id = sessions.open(0)
    plan = sessions.fetch(session_id, 1)
    assert [note_news(plan, part) for _, part in plan.partitions()] == [True]
    plan = sessions.fetch(session_id, 2)
    assert [note_news(plan, part) for _, part in plan.partitions()] == [False]
    plan = sessions.fetch(session_id, 3, {key(0): FetchPart(0, 1000, current_leader_epoch=7)})
    assert [note_news(plan, part) for _, part in plan.partitions()] == [True]
    plan = sessions.fetch(session_id, 4, {key(0): FetchPart(5, 1000, current_leader_epoch=7)})
    assert [note_news(plan, part) for _, part in plan.partitions()] == [False], "it went on"
    plan = sessions.fetch(session_id, 5, {key(0): FetchPart(3, 1000, current_leader_epoch=7)})
    assert [note_news(plan, part) for _, part in plan.partitions()] == [True], "it was cut"


@pytest.mark.parametrize("wrong_epoch", [2, 5, 2**31 - 1])
def test_wrong_epoch(wrong_epoch: int) -> None:
    context = Sessions()
    session_id = context.open(0)
    plan = context.fetch(session_id, wrong_epoch)
    assert plan.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert asked(plan) == []
    assert context.fetch(session_id, 1).error is ErrorCode.NONE


def test_unknown_session() -> None:
    plan = Sessions().fetch(12345, 1)
    assert plan.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_mixing_names_and_topic_ids_in_a_session() -> None:
    context = Sessions()
    plan = context.fetch(context.open(0), 1, by_id=True)
    assert plan.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_final_epoch_closes_the_session_and_is_served_without_one() -> None:
    context = Sessions()
    session_id = context.open(0)
    plan = context.fetch(session_id, -1, parts(3))
    assert plan.session_id == 0
    assert asked(plan) == [3]
    assert context.fetch(session_id, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_forgetting_everything_ends_the_session() -> None:
    context = Sessions()
    session_id = context.open(0)
    plan = context.fetch(session_id, 1, forget=[key(0)])
    assert plan.session_id == 0
    assert len(context.sessions) == 0


def test_epochs_wrap_to_one() -> None:
    context = Sessions()
    plan = context.fetch(0, 0, parts(0))
    assert plan.session is not None
    plan.session.epoch = 2**31 - 1
    assert context.fetch(plan.session_id, 2**31 - 1).error is ErrorCode.NONE
    assert context.fetch(plan.session_id, 1).error is ErrorCode.NONE


def test_full_cache_declines_until_the_oldest_is_idle_long_enough() -> None:
    context = Sessions(max_sessions=2)
    oldest, newer = context.open(0), context.open(0)
    assert context.fetch(0, 0, parts(0)).session_id == 0
    context.now_ms = 900
    context.fetch(newer, 1)
    context.now_ms = 1000
    assert context.fetch(0, 0, parts(0)).session_id > 0
    assert context.fetch(oldest, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert context.fetch(newer, 2).error is ErrorCode.NONE


def test_partitions_that_were_given_records_are_served_last() -> None:
    """A partition that is always full does not starve the others."""
    context = Sessions()
    session_id = context.open(0, 1, 2)
    context.fetch(session_id, 1).move_to_back([key(0)])
    plan = context.fetch(session_id, 2)
    assert asked(plan) == [1, 2, 0]
    plan.move_to_back([key(1)])
    assert asked(context.fetch(session_id, 3)) == [2, 0, 1]


def open_as_follower(sessions: Sessions, *indexes: int) -> int:
    plan = sessions.sessions.plan(
        0, 0, parts(*indexes), [], uses_topic_ids=False, now_ms=sessions.now_ms, is_follower=True
    )
    assert asked(plan) == list(indexes)
    return plan.session_id


def test_a_follower_reads_what_is_due() -> None:
    """Named, or marked as having news; and never what it no longer follows."""
    sessions = Sessions()
    session_id = open_as_follower(sessions, 0, 1, 2)
    first = sessions.fetch(session_id, 1)
    assert asked(first) == [0, 1, 2] and not first.is_partial
    first.mark_up_to_date([key(0), key(1)])
    second = sessions.fetch(session_id, 2)
    assert asked(second) == [2] and second.is_partial
    assert second.session is not None
    for _ in range(2):
        second.session.on_change(key(1), None, 0)
    assert asked(second) == [2, 1]
    third = sessions.fetch(session_id, 3, parts(0, offset=9), forget=[key(1), key(2)])
    assert [(each.partition, part.fetch_offset) for each, part in third.partitions()] == [(0, 9)]
    second.session.on_change(key(1), None, 0)
    assert asked(third) == [0], "it is fetched no more"


def test_a_follower_reads_the_rest_from_time_to_time() -> None:
    """What was not notified is found some seconds later."""
    sessions = Sessions()
    session_id = open_as_follower(sessions, *range(50))
    seen: list[int] = []
    for epoch in range(1, 9):
        plan = sessions.fetch(session_id, epoch)
        if epoch > 1:
            seen += asked(plan)
        plan.mark_up_to_date([key(index) for index in asked(plan)])
        sessions.now_ms += 600
    assert set(seen) == set(range(50)) and len(seen) == 60


def test_everything_is_due_to_a_follower_that_registered_again() -> None:
    sessions = Sessions()
    session_id = open_as_follower(sessions, 0, 1)
    plan = sessions.fetch(session_id, 1)
    assert plan.session is not None
    plan.session.on_follower_fetch(20, 0)
    plan.mark_up_to_date([key(0), key(1)])
    plan.session.on_follower_fetch(20, 1)
    assert asked(plan) == []
    plan.session.on_follower_fetch(21, 2)
    assert asked(plan) == [0, 1]


def test_everything_is_due_to_a_consumer() -> None:
    sessions = Sessions()
    session_id = sessions.open(0, 1)
    plan = sessions.fetch(session_id, 1)
    plan.mark_up_to_date([key(0), key(1)])
    assert asked(sessions.fetch(session_id, 2)) == [0, 1]


def test_followers_take_the_place_of_consumers() -> None:
    sessions = Sessions(max_sessions=2)
    consumer = sessions.open(0)
    follower = open_as_follower(sessions, 0)
    assert open_as_follower(sessions, 1)
    assert sessions.fetch(consumer, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.fetch(follower, 1).error is ErrorCode.NONE
    third = sessions.sessions.plan(
        0, 0, parts(2), [], uses_topic_ids=False, now_ms=0, is_follower=True
    )
    assert third.session_id == 0
