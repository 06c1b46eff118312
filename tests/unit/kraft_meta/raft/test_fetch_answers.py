"""The leader's answers to fetches: at once, parked, superseded, refused."""

from __future__ import annotations

from kraftrio.kraft_meta.raft.messages import FetchReply
from kraftrio.wire.errors import ErrorCode
from tests.unit.kraft_meta.raft.core_parts import Parts, parts


def answers(core: Parts) -> list[FetchReply]:
    return [message for message in core.sent() if isinstance(message, FetchReply)]


def leading() -> Parts:
    core = parts()
    core.lead()
    core.sent()
    return core


def test_a_fetch_with_news_is_answered_at_once() -> None:
    """Batches up to what is durable, and the fetch counts for the high watermark."""
    core = leading()
    core.answers.on_fetch(core.fetch_from(2, 0), 0)
    (answer,) = answers(core)
    assert [batch.base_offset for batch in answer.batches] == [0]
    assert answer.high_watermark == -1
    core.answers.on_fetch(core.fetch_from(2, 1), 0)
    (answer,) = answers(core)
    assert (answer.batches, answer.high_watermark) == ((), 1)


def test_a_fetch_without_news_waits_for_a_durable_record() -> None:
    """Not for one that is only proposed."""
    core = leading()
    core.answers.on_fetch(core.fetch_from(2, 1), 0)
    core.sent()
    core.answers.on_fetch(core.fetch_from(2, 1, high_watermark=1), 0)
    core.state.log.propose([b"a"], core.state.epoch)
    assert answers(core) == []
    core.make_durable()
    (answer,) = answers(core)
    assert [batch.values for batch in answer.batches] == [(b"a",)]


def test_a_fetch_that_waited_long_enough_is_answered_empty() -> None:
    """At its deadline, which is the next time to act."""
    core = leading()
    core.answers.on_fetch(core.fetch_from(2, 1), 0)
    core.sent()
    core.answers.on_fetch(core.fetch_from(9, 1, high_watermark=1), 100)
    assert list(core.answers.next_deadlines_ms()) == [600]
    core.answers.on_time(599)
    assert answers(core) == []
    core.answers.on_time(600)
    (answer,) = answers(core)
    assert (answer.destination, answer.batches, answer.error) == (9, (), ErrorCode.NONE)


def test_the_next_fetch_of_a_replica_answers_the_one_before() -> None:
    """A replica waits for one answer; what it asked before it has given up."""
    core = leading()
    core.answers.on_fetch(core.fetch_from(2, 1), 0)
    core.sent()
    first, second = (core.fetch_from(2, 1, high_watermark=1) for _ in range(2))
    core.answers.on_fetch(first, 0)
    core.answers.on_fetch(second, 50)
    assert len(answers(core)) == 1
    assert list(core.answers.next_deadlines_ms()) == [550]


def test_fetches_that_wait_are_refused_when_leadership_ends() -> None:
    """In the name of the new epoch, so that the follower looks for its leader."""
    core = leading()
    core.answers.on_fetch(core.fetch_from(2, 1), 0)
    core.sent()
    core.answers.on_fetch(core.fetch_from(2, 1, high_watermark=1), 0)
    core.roles.become_unattached(core.state.epoch + 1, 0)
    (answer,) = answers(core)
    assert (answer.error, answer.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, core.state.epoch)
    assert list(core.answers.next_deadlines_ms()) == []


def test_epochs_of_requests_are_checked() -> None:
    """An older one is fenced, a newer one unknown, and who does not lead says so."""
    core = leading()
    epoch = core.state.epoch
    assert core.answers.on_snapshot_fetch(2, epoch, 0) is ErrorCode.NONE
    assert core.answers.on_snapshot_fetch(2, epoch - 1, 0) is ErrorCode.FENCED_LEADER_EPOCH
    assert core.answers.on_snapshot_fetch(2, epoch + 1, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH
    follower = parts()
    follower.follow()
    assert follower.answers.on_snapshot_fetch(3, 1, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
