"""Followers' logs become the leader's: what KIP-101, KIP-279 and KIP-320 are about."""

from __future__ import annotations

from random import Random

import pytest

from kraftrio.broker.replica.follower.partition import StartAt, TruncateTo
from kraftrio.broker.replica.follower.session import SessionKey
from kraftrio.wire.errors import ErrorCode
from tests.support.logs import TOPIC_ID
from tests.unit.broker.replica.follower.follower_context import Follower, Leader, Replica

KEY = SessionKey(TOPIC_ID, 0)


def replicate(leader: Replica, *followers: Replica, commit: bool = True) -> None:
    """Let followers catch up in the leader's epoch, and with it the high watermarks."""
    for replica in followers:
        follower = Follower(replica)
        follower.follow(leader.leader_epoch)
        follower.catch_up(Leader.of(leader))
    if commit:
        leader.commit()


def assert_same(leader: Replica, follower: Replica) -> None:
    """The logs are equal to the byte, and so is what they know of epochs."""
    assert follower.image() == leader.image()
    assert follower.log.log_end_offset == leader.log.log_end_offset
    ours = [
        e for e in follower.log.leader_epochs.entries if e.start_offset < leader.log.log_end_offset
    ]
    theirs = [
        e for e in leader.log.leader_epochs.entries if e.start_offset < leader.log.log_end_offset
    ]
    assert ours == theirs


# -- following


def test_a_new_follower_copies_byte_by_byte() -> None:
    """Several batches of several epochs in one answer; the epochs are the leader's."""
    leader, replica = Replica(), Replica()
    leader.lead(0)
    leader.write(b"a", b"b")
    leader.lead(3)
    leader.write(b"c")
    leader.commit()
    follower = Follower(replica)
    follower.follow(3)
    follower.catch_up(Leader.of(leader))
    assert_same(leader, replica)
    assert replica.log.leader_epochs.entries == [(0, 0), (3, 2)]
    assert replica.log.high_watermark == 3


def test_the_high_watermark_is_at_most_the_own_end() -> None:
    """A follower far behind knows only that what it has is committed."""
    leader, replica = Replica(), Replica()
    leader.lead(0)
    leader.write(b"a", b"b", b"c")
    leader.commit()
    follower = Follower(replica)
    follower.follow(0)
    source = Leader.of(leader)
    source.max_bytes = 1
    follower.round(source)
    assert (replica.log.log_end_offset, replica.log.high_watermark) == (1, 1)


def test_a_committed_offset_is_returned_with_the_next_answer() -> None:
    """An answer without records moves the high watermark."""
    leader, replica = Replica(), Replica()
    leader.lead(0)
    leader.write(b"a")
    follower, source = Follower(replica), Leader.of(leader)
    follower.follow(0)
    follower.catch_up(source)
    assert replica.log.high_watermark == 0
    leader.commit()
    follower.round(source)
    assert replica.log.high_watermark == 1


def test_the_log_start_follows_the_leaders() -> None:
    """Deleted records go at the followers too, and the leader learns of it (DeleteRecords)."""
    leader, replica = Replica(), Replica()
    leader.lead(0)
    leader.write(b"a", b"b", b"c")
    leader.commit()
    follower, source = Follower(replica), Leader.of(leader)
    follower.follow(0)
    follower.catch_up(source)
    leader.log.delete_records_before(2)
    follower.round(source)
    assert replica.log.log_start_offset == 2
    sent = follower.ask()
    assert sent is not None
    assert sent.request.topics[0].partitions[0].log_start_offset == 2


# -- KIP-101


def test_kip_101_scenario_1_data_loss() -> None:
    """A follower that restarts with an old high watermark keeps what its leader has too.

    It would lose m2 for ever by truncating to its high watermark, if the leader failed just then.
    """
    a, b = Replica(), Replica()
    b.lead(0)
    b.write(b"m1")
    replicate(b, a)
    b.write(b"m2")
    replicate(b, a)
    assert (a.log.high_watermark, a.log.log_end_offset) == (1, 2)  # the news of 2 is not here yet
    a.restart()
    follower = Follower(a)
    follower.follow(0)
    follower.round(Leader.of(b))
    assert not follower.done
    a.lead(1)  # b fails
    assert [value for _, _, value in a.data()] == [b"m1", b"m2"]


def test_kip_101_scenario_2_divergence() -> None:
    """Both restart, a without m2 leads and writes m3 at its offset: b gives up its m2."""
    a, b = Replica(), Replica()
    b.lead(0)
    b.write(b"m1")
    replicate(b, a)
    b.write(b"m2")  # at offset 1, never replicated
    a.lead(1)
    a.write(b"m3")  # at offset 1
    follower = Follower(b)
    follower.follow(1)
    follower.catch_up(Leader.of(a))
    assert_same(a, b)
    assert [value for _, _, value in b.data()] == [b"m1", b"m3"]
    assert [type(effect) for effect in follower.done] == [TruncateTo]


# -- KIP-279


def test_kip_279_fast_leader_changes() -> None:
    """Logs that part in several epochs, with one that the leader never saw, become equal."""
    a, b = Replica(), Replica()
    a.lead(0)
    a.write(b"x", b"y")
    replicate(a, b)
    b.lead(1)
    b.write(b"b1", b"b2")  # only at b
    a.lead(2)
    a.write(b"a2")  # only at a
    b.lead(3)
    b.write(b"b3", b"b4")  # only at b, after its own epoch 1
    a.lead(4)
    a.write(b"a4")
    replicate(a, b)
    assert_same(a, b)
    assert b.log.leader_epochs.entries == [(0, 0), (2, 2), (4, 3)]


def test_kip_279_asks_again_for_an_epoch_it_does_not_know() -> None:
    """The leader's answer names an epoch that the follower skipped: it cuts and asks once more."""
    a, b = Replica(), Replica()
    a.lead(1)
    a.write(b"x")
    replicate(a, b)
    a.lead(2)
    a.write(b"a2", b"a2")
    b.lead(3)
    b.write(b"b3", b"b3", b"b3")
    a.lead(4)
    a.write(b"a4")
    follower = Follower(b)
    follower.follow(4)
    source = Leader.of(a)
    follower.round(source)
    # The leader knows 2 as the largest epoch up to 3; the follower's largest up to 2 is 1.
    assert follower.done == [
        TruncateTo(
            next(iter(follower.core.partitions())),
            1,
            "epoch 3 is not the leader's, whose epoch 2 ends at 3",
        )
    ]
    follower.catch_up(source)
    assert_same(a, b)


# -- KIP-320 and its like


def test_kip_320_a_fenced_follower_waits_for_metadata() -> None:
    """It asks nothing more until it learns of the new epoch."""
    leader, replica = Replica(), Replica()
    leader.lead(5)
    follower, source = Follower(replica), Leader.of(leader)
    follower.follow(4)
    follower.round(source)
    assert follower.state() == "FAILED"
    follower.now_ms += 1e9
    assert not follower.round(source)
    follower.follow(5)
    follower.catch_up(source)
    assert follower.state() == "FETCHING"


def test_kip_320_a_leader_that_is_behind_is_asked_again_soon() -> None:
    """UNKNOWN_LEADER_EPOCH: the leader has not heard of its epoch yet; nothing is truncated."""
    leader, replica = Replica(), Replica()
    leader.lead(4)
    leader.write(b"a")
    follower, source = Follower(replica), Leader.of(leader)
    follower.follow(5)
    follower.round(source)
    assert follower.state() == "DELAYED"
    assert follower.core.next_wake_ms(0) == 10
    leader.lead(5)
    source.epoch = 5
    follower.catch_up(source)
    assert not follower.done


def test_batches_of_an_epoch_to_come_are_not_taken() -> None:
    """KAFKA-18723: what a fetch of an old epoch brings of a newer one waits for the metadata."""
    leader, replica = Replica(), Replica()
    leader.lead(4)
    leader.write(b"a")
    leader.lead(6)
    leader.write(b"b")
    source = Leader.of(leader, epoch=5)
    follower = Follower(replica)
    follower.follow(5)
    follower.round(source)
    follower.round(source)
    assert replica.values() == [b"a"]
    assert follower.state() == "DELAYED"
    source.epoch = 6
    follower.follow(6)
    follower.catch_up(source)
    assert_same(leader, replica)


def test_an_epoch_led_without_a_record_leaves_no_trace() -> None:
    """A deposed leader that wrote nothing would else be answered a divergence without end."""
    a, b = Replica(), Replica()
    a.lead(1)
    a.write(b"x")
    replicate(a, b)
    b.lead(2)
    a.lead(3)
    follower = Follower(b)
    follower.follow(3)
    assert follower.catch_up(Leader.of(a)) <= 3
    assert b.log.latest_epoch == 1
    a.write(b"y")
    follower.catch_up(Leader.of(a))
    assert_same(a, b)


# -- out of range


def test_out_of_range_above_cuts_to_the_leaders_end() -> None:
    """An unclean leader has less than the follower, and no epoch that shows where they part."""
    leader, replica = Replica(), Replica()
    for context in (leader, replica):
        context.lead(0)
        context.write(b"a", b"b")
    replica.write(b"c")
    leader.log.leader_epochs.clear()
    follower = Follower(replica)
    follower.follow(0)
    source = Leader.of(leader)
    follower.round(source)
    assert follower.state() == "RESETTING"
    follower.round(source)
    assert [e.offset for e in follower.done if isinstance(e, TruncateTo)] == [2]
    assert len(follower.done) == 1
    assert replica.log.log_end_offset == 2


def test_out_of_range_below_starts_where_the_leader_does() -> None:
    """What the follower lacks is deleted at the leader: nothing of its log is left."""
    leader, replica = Replica(), Replica()
    leader.lead(0)
    leader.write(b"a", b"b")
    replicate(leader, replica)
    leader.write(*[b"x"] * 5)
    leader.commit()
    leader.log.delete_records_before(5)
    follower = Follower(replica)
    follower.follow(0)
    follower.catch_up(Leader.of(leader))
    assert [e.offset for e in follower.done if isinstance(e, StartAt)] == [5]
    assert len(follower.done) == 1
    assert (replica.log.log_start_offset, replica.log.log_end_offset) == (5, 7)
    assert replica.image() == leader.image()
    assert replica.log.leader_epochs.entries == leader.log.leader_epochs.entries


def test_out_of_range_of_a_leader_that_moved_on_asks_again() -> None:
    """Within the leader's range by now: the next fetch shows more; and it does not spin."""
    leader, replica = Replica(), Replica()
    leader.lead(0)
    leader.write(b"a", b"b")
    replicate(leader, replica)
    follower, source = Follower(replica), Leader.of(leader)
    follower.follow(0)
    source.errors[KEY] = ErrorCode.OFFSET_OUT_OF_RANGE
    follower.round(source)
    source.errors.clear()
    follower.round(source)
    assert not follower.done
    assert follower.state() == "DELAYED"
    follower.catch_up(source)


def test_the_leaders_log_starts_within_a_batch() -> None:
    """The batch comes whole, and the follower's log starts where the leader's does."""
    leader, replica = Replica(), Replica()
    leader.lead(0)
    leader.append(b"a", b"b", b"c")
    leader.write(b"d")
    leader.commit()
    leader.log.delete_records_before(2)
    follower, source = Follower(replica), Leader.of(leader)
    follower.follow(0)
    follower.catch_up(source)
    assert (replica.log.log_start_offset, replica.log.log_end_offset) == (2, 4)
    assert replica.image() == leader.image()


def test_records_without_epochs_are_cut_to_the_high_watermark() -> None:
    """Nothing shows whether they are the leader's; what is committed is."""
    leader, replica = Replica(), Replica()
    leader.lead(0)
    leader.write(b"a", b"b", b"c")
    replicate(leader, replica)
    replica.log.update_high_watermark(1)
    replica.log.leader_epochs.clear()
    follower = Follower(replica)
    follower.follow(0)
    assert replica.log.log_end_offset == 1
    follower.catch_up(Leader.of(leader))
    assert replica.image() == leader.image()


# -- any history


@pytest.mark.parametrize("seed", range(120))
def test_any_history_ends_in_equal_logs(seed: int) -> None:
    """Leaders change at random among three, some with records that nobody else has; whoever leads
    at last is copied by the others, and nothing committed by all of them is ever cut.
    """
    rng = Random(seed)
    replicas = [Replica(segment_bytes=rng.choice([300, 1 << 20])) for _ in range(3)]
    epoch = 0
    count = 0
    committed: list[tuple[int, int, bytes | None]] = []
    leader = replicas[0]
    for _ in range(rng.randint(2, 12)):
        epoch += rng.randint(1, 2)
        # Clean: only who has everything committed may lead.
        able = [r for r in replicas if r.log.log_end_offset >= len(committed)
                and r.data()[: len(committed)] == committed]  # fmt: skip
        leader = rng.choice(able)
        leader.lead(epoch)
        for _ in range(rng.randint(0, 4)):
            values = [b"%d" % (count + index) for index in range(rng.randint(1, 3))]
            count += len(values)
            if rng.random() < 0.5:
                leader.append(*values)
            else:
                leader.write(*values)
        source = Leader.of(leader)
        source.max_bytes = rng.choice([1, 200, 1 << 20])
        source.grants_sessions = rng.random() < 0.8
        for replica in replicas:
            if replica is leader or rng.random() < 0.4:
                continue
            follower = Follower(replica)
            follower.follow(epoch)
            for _ in range(rng.randint(0, 6)):
                if not follower.round(source):
                    follower.now_ms = follower.core.next_wake_ms(follower.now_ms) or 0.0
            if rng.random() < 0.2:
                replica.restart()
        if all(r.data()[: len(leader.data())] == leader.data() for r in replicas):
            committed = leader.data()
            leader.commit()
        for replica in replicas:
            assert replica.data()[: len(committed)] == committed
    replicate(leader, *(r for r in replicas if r is not leader))
    for replica in replicas:
        assert_same(leader, replica)
