"""Roles, leader epochs, ISR checks and the high watermark of one replica."""

from __future__ import annotations

import pytest

from kraftrio.broker.replica.state.isr import IsrAnswer, IsrMember, IsrProposal
from kraftrio.broker.replica.state.partition_state import (
    MOVES,
    NO_EFFECTS,
    Effects,
    PartitionState,
    Role,
)
from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.wire.errors import ErrorCode, KafkaError


class FixedBrokers:
    """Brokers with their epochs; those of `leaving` shut down."""

    def __init__(self, epochs: dict[int, int]) -> None:
        self.epochs = epochs
        self.leaving: set[int] = set()

    def live_epoch(self, broker_id: int) -> int:
        return self.epochs.get(broker_id, -1)

    def may_join_isr(self, broker_id: int) -> bool:
        return broker_id in self.epochs and broker_id not in self.leaving


BROKERS = FixedBrokers({1: 11, 2: 12, 3: 13})


def image(
    leader: int = 1,
    epoch: int = 0,
    isr: tuple[int, ...] = (1,),
    partition_epoch: int = 0,
    replicas: tuple[int, ...] = (),
) -> PartitionImage:
    return PartitionImage(
        replicas=replicas or (1, 2, 3)[: max(isr)],
        isr=isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
    )


def leader(high_watermark: int = 0, log_end_offset: int = 0, **changes: object) -> PartitionState:
    state = PartitionState(1, high_watermark, BROKERS)
    assert state.apply(image(**changes), log_end_offset)  # type: ignore[arg-type]
    return state


def test_without_a_role_from_the_controller_no_request_is_served() -> None:
    state = PartitionState(1, 0, BROKERS)
    assert state.role is Role.NONE
    assert state.check_leader(-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert state.check_append(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_new_leader_of_a_single_replica_commits_its_whole_log() -> None:
    state = leader(high_watermark=3, log_end_offset=10)
    assert state.advance_high_watermark()
    assert state.high_watermark == 10


def test_what_the_only_replica_appends_is_committed() -> None:
    state = leader()
    assert state.is_sole_replica
    state.on_sole_append(5)
    assert state.high_watermark == 5
    assert not leader(isr=(1, 2)).is_sole_replica


def test_high_watermark_waits_for_every_member_of_the_isr() -> None:
    state = leader(isr=(1, 2))
    assert not state.on_append(5)
    assert state.high_watermark == 0


def test_same_epoch_again_is_no_new_leadership() -> None:
    state = leader(epoch=4)
    assert not state.apply(image(epoch=4, partition_epoch=1), 0)
    assert state.apply(image(epoch=5, partition_epoch=2), 0)


def test_becoming_a_follower_stops_service() -> None:
    state = leader(epoch=4)
    assert state.apply(image(leader=2, epoch=5, isr=(1, 2)), 0)
    assert state.role is Role.FOLLOWER
    assert state.check_leader(-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not state.advance_high_watermark()


@pytest.mark.parametrize(
    ("high_watermark", "start", "end", "expected"),
    [
        (7, 0, 10, 7),  # as its leader's
        (12, 0, 10, 10),  # as far as its own log goes
        (3, 0, 10, 5),  # a leader that has just begun may not know yet what was committed
        (5, 0, 4, 4),  # its log was cut
        (0, 20, 20, 20),  # its log began again
        (40, 20, 30, 30),
    ],
)
def test_a_followers_high_watermark(
    high_watermark: int, start: int, end: int, expected: int
) -> None:
    state = PartitionState(1, 5, BROKERS)
    state.apply(image(leader=2, isr=(1, 2)), 10)
    assert state.on_leader_answer(high_watermark, start, end) is (expected > 5)
    assert state.high_watermark == expected


def test_a_cut_takes_the_high_watermark_back() -> None:
    state = PartitionState(1, 5, BROKERS)
    state.apply(image(leader=2, isr=(1, 2)), 10)
    state.on_truncation(0, 6)
    assert state.high_watermark == 5
    state.on_truncation(0, 3)
    assert state.high_watermark == 3
    state.on_truncation(9, 9)
    assert state.high_watermark == 9


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (-1, ErrorCode.NONE),
        (4, ErrorCode.NONE),
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epoch_of_a_request(asked: int, expected: ErrorCode) -> None:
    assert leader(epoch=4).check_leader(asked) is expected


@pytest.mark.parametrize(
    ("acks", "min_isr", "expected"),
    [
        (-1, 1, ErrorCode.NONE),
        (-1, 2, ErrorCode.NOT_ENOUGH_REPLICAS),
        (1, 2, ErrorCode.NONE),
        (0, 2, ErrorCode.NONE),
    ],
)
def test_min_insync_replicas_binds_acks_all_only(
    acks: int, min_isr: int, expected: ErrorCode
) -> None:
    state = leader(replicas=(1, 2))
    state.min_insync_replicas = min_isr
    assert state.check_append(acks) is expected


def test_min_insync_replicas_cannot_ask_for_more_than_there_are() -> None:
    alone, pair = leader(replicas=(1,)), leader(replicas=(1, 2))
    alone.min_insync_replicas, pair.min_insync_replicas = 2, 3
    assert alone.check_append(-1) is ErrorCode.NONE
    assert pair.check_append(-1) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_leader_epoch_never_goes_back() -> None:
    state = leader(epoch=4)
    with pytest.raises(AssertionError):
        state.apply(image(epoch=3), 0)


# -- followers --------------------------------------------------------------------------------

LAG_MS = 30_000


def trio_leader(
    isr: tuple[int, ...] = (1, 2, 3), end: int = 10, brokers: FixedBrokers | None = None
) -> PartitionState:
    """Broker 1 leads replicas 1, 2, 3 since time 0 with `end` records, none committed."""
    state = PartitionState(1, 0, brokers or BROKERS, lag_time_max_ms=LAG_MS)
    assert state.apply(image(isr=isr, replicas=(1, 2, 3)), end, 0)
    return state


def fetch(
    state: PartitionState, replica: int, offset: int, now_ms: float = 0, epoch: int | None = None
) -> Effects:
    """A follower fetches in its current broker epoch."""
    broker_epoch = 10 + replica if epoch is None else epoch
    return state.on_follower_fetch(replica, broker_epoch, offset, 0, state.log_end_offset, now_ms)


def answer(
    state: PartitionState,
    proposal: IsrProposal,
    error: ErrorCode = ErrorCode.NONE,
    *,
    leader_epoch: int = 0,
    partition_epoch: int = 1,
) -> Effects:
    taken = IsrAnswer(error, leader_epoch, partition_epoch, proposal.broker_ids)
    return state.on_isr_answer(proposal, taken, 0)


@pytest.mark.parametrize("role", Role)
def test_an_offline_replica_only_goes_away(role: Role) -> None:
    """No metadata brings a log back whose disk has failed."""
    assert (role in MOVES[Role.OFFLINE]) is (role in (Role.OFFLINE, Role.NONE))
    state = leader()
    state.go_offline()
    assert not state.apply(image(epoch=7, partition_epoch=9), 0)
    assert state.check_leader(-1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert state.check_append(1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert state.check_followed(7) is ErrorCode.KAFKA_STORAGE_ERROR
    state.resign()
    assert state.role is Role.NONE


@pytest.mark.parametrize(
    ("isr", "offsets", "expected"),
    [
        ((1, 2, 3), {}, 0),  # nobody has fetched yet
        ((1, 2, 3), {2: 7}, 0),
        ((1, 2, 3), {2: 7, 3: 4}, 4),
        ((1, 2, 3), {2: 10, 3: 10}, 10),
        ((1, 2), {2: 7}, 7),
        ((1, 2), {2: 7, 3: 4}, 7),  # 3 was never caught up
        ((1,), {}, 10),
    ],
)
def test_high_watermark_is_the_least_in_the_isr(
    isr: tuple[int, ...], offsets: dict[int, int], expected: int
) -> None:
    state = trio_leader(isr)
    state.advance_high_watermark()
    for replica, offset in offsets.items():
        before = state.high_watermark
        assert fetch(state, replica, offset).high_watermark_advanced is (
            state.high_watermark > before
        )
    assert state.high_watermark == expected


def test_high_watermark_never_goes_back() -> None:
    """A follower that fetches from an earlier offset lost something; what was returned stays so."""
    state = trio_leader((1, 2))
    fetch(state, 2, 8)
    assert fetch(state, 2, 3) == NO_EFFECTS
    assert state.high_watermark == 8


def test_high_watermark_stands_while_the_isr_is_too_small() -> None:
    """KIP-966: what only one replica has is shown to nobody where two are demanded."""
    state = trio_leader((1,))
    state.min_insync_replicas = 2
    assert not state.on_append(12, 0)
    assert not state.advance_high_watermark()
    assert state.apply(image(epoch=1, isr=(1, 2), replicas=(1, 2, 3), partition_epoch=1), 12)
    assert fetch(state, 2, 12).high_watermark_advanced


def test_an_append_waits_for_the_followers_of_the_isr() -> None:
    state = trio_leader()
    for replica in (2, 3):
        fetch(state, replica, 10)
    assert not state.on_append(11)
    assert not fetch(state, 2, 11).high_watermark_advanced
    assert fetch(state, 3, 11).high_watermark_advanced
    assert state.high_watermark == 11


def test_a_follower_about_to_join_holds_the_high_watermark_back() -> None:
    """It is caught up but not in the ISR yet: were it passed, it could never join."""
    brokers = FixedBrokers({1: 11, 2: 12})
    state = trio_leader((1,), brokers=brokers)
    state.advance_high_watermark()
    fetch(state, 2, 10, 5)
    assert not state.on_append(11, 6) and state.high_watermark == 10


def test_a_follower_that_shuts_down_holds_no_request_back() -> None:
    brokers = FixedBrokers({1: 11, 2: 12})
    brokers.leaving.add(2)
    state = trio_leader((1,), brokers=brokers)
    state.advance_high_watermark()
    assert fetch(state, 2, 10, 5).proposal is None
    assert state.on_append(11, 6) and state.high_watermark == 11


def test_a_follower_joins_when_it_has_the_high_watermark() -> None:
    state = trio_leader((1, 2), end=0)
    state.on_append(10)
    fetch(state, 2, 8)
    assert fetch(state, 3, 7).proposal is None
    proposal = fetch(state, 3, 8).proposal
    assert proposal == IsrProposal(0, 0, (IsrMember(1, 11), IsrMember(2, 12), IsrMember(3, 13)))
    assert state.isr.committed == (1, 2) and state.isr.maximal == {1, 2, 3}


def test_a_follower_joins_only_with_the_start_of_the_leader_epoch() -> None:
    """The high watermark of a new leader may be older than what consumers were sent."""
    state = trio_leader((1,), end=10)
    state.min_insync_replicas = 2  # so that the high watermark stays at 0
    assert fetch(state, 2, 9).proposal is None
    assert fetch(state, 2, 10).proposal is not None


def test_whom_a_proposal_adds_holds_the_high_watermark_back_at_once() -> None:
    """The controller may have taken it before we learn so."""
    state = trio_leader((1, 2))
    fetch(state, 2, 10)
    assert fetch(state, 3, 10).proposal is not None
    state.on_append(11)
    assert not fetch(state, 2, 11).high_watermark_advanced
    assert fetch(state, 3, 11).high_watermark_advanced


def test_one_proposal_at_a_time() -> None:
    state = trio_leader((1,), end=0)
    first = fetch(state, 2, 0).proposal
    assert first is not None
    assert fetch(state, 3, 0).proposal is None
    assert state.check_isr(10 * LAG_MS) is None
    follow_up = answer(state, first).proposal
    assert follow_up is not None and follow_up.broker_ids == (1, 2, 3)
    assert follow_up.partition_epoch == 1


def test_a_restarted_broker_does_not_join_by_its_former_fetches() -> None:
    """KIP-903: its log may have lost what those fetches had shown."""
    brokers = FixedBrokers({1: 11, 2: 12})
    state = trio_leader((1,), brokers=brokers)
    brokers.epochs[2] = 99
    with pytest.raises(KafkaError) as caught:
        fetch(state, 2, 10)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(state, 2, 10, epoch=100).proposal is None  # and we have not heard of that one
    assert fetch(state, 2, 10, epoch=99).proposal is not None


def test_late_followers_leave() -> None:
    state = trio_leader()
    fetch(state, 2, 10, 20_000)
    assert state.check_isr(LAG_MS) is None
    assert state.check_isr(LAG_MS + 1) == IsrProposal(0, 0, (IsrMember(1, 11), IsrMember(2, 12)))
    assert state.isr.maximal == {1, 2, 3}


def test_a_follower_at_the_end_is_never_late() -> None:
    """Nothing was written for long, and its fetch is parked."""
    state = trio_leader((1, 2))
    fetch(state, 2, 10, 5)
    assert state.check_isr(100 * LAG_MS) is None


def test_a_follower_as_fast_as_the_writer_is_not_late() -> None:
    """It never reaches the end, but always what was the end at its fetch before."""
    state = trio_leader((1, 2))
    for second in range(1, 100):
        fetch(state, 2, state.log_end_offset - 10 if second > 1 else 0, second * 1000)
        state.on_append(state.log_end_offset + 10, second * 1000)
        assert state.check_isr(second * 1000) is None
    assert state.check_isr(99_000 + LAG_MS) is not None


def test_a_shrunken_isr_lets_the_high_watermark_go_on() -> None:
    state = trio_leader()
    fetch(state, 2, 10, LAG_MS)
    proposal = state.check_isr(LAG_MS + 1)
    assert proposal is not None
    assert answer(state, proposal).high_watermark_advanced
    assert state.high_watermark == 10 and state.isr.committed == (1, 2)


@pytest.mark.parametrize(
    ("error", "still_pending", "send_later"),
    [
        (ErrorCode.OPERATION_NOT_ATTEMPTED, False, False),
        (ErrorCode.INELIGIBLE_REPLICA, False, False),
        (ErrorCode.INVALID_UPDATE_VERSION, True, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, True, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, False),
        (ErrorCode.INVALID_REQUEST, True, False),
        (ErrorCode.NEW_LEADER_ELECTED, True, False),
        (ErrorCode.REQUEST_TIMED_OUT, True, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, True),
    ],
)
def test_refused_proposals(error: ErrorCode, still_pending: bool, send_later: bool) -> None:
    """A follower that might have been added stays in the maximal ISR until the metadata shows."""
    state = trio_leader((1,), end=0)
    proposal = fetch(state, 2, 0).proposal
    assert proposal is not None
    effects = answer(state, proposal, error)
    assert (state.isr.pending is not None) is still_pending
    assert state.isr.maximal == ({1, 2} if still_pending else {1})
    assert effects == Effects(proposal=proposal if send_later else None, send_later=send_later)
    if still_pending:
        state.apply(image(isr=(1,), replicas=(1, 2, 3), partition_epoch=1), 0)
        assert state.isr.maximal == {1}


def test_answers_after_newer_metadata_count_no_more() -> None:
    state = trio_leader((1, 2), end=0)
    proposal = fetch(state, 3, 0).proposal
    assert proposal is not None
    state.apply(image(isr=(1,), replicas=(1, 2, 3), partition_epoch=5), 0)
    assert answer(state, proposal) == NO_EFFECTS
    assert state.isr.committed == (1,) and state.partition_epoch == 5


def test_metadata_older_than_an_answer_counts_no_more() -> None:
    state = trio_leader((1, 2), end=0)
    proposal = fetch(state, 3, 0).proposal
    assert proposal is not None
    answer(state, proposal, partition_epoch=3)
    assert not state.apply(image(isr=(1, 2), replicas=(1, 2, 3), partition_epoch=2), 0)
    assert state.isr.committed == (1, 2, 3)


def test_metadata_that_an_answer_already_brought_drops_no_proposal() -> None:
    state = trio_leader((1,), end=0)
    first = fetch(state, 2, 0).proposal
    assert first is not None
    answer(state, first)
    second = fetch(state, 3, 0).proposal
    assert second is not None
    state.apply(image(isr=(1, 2), replicas=(1, 2, 3), partition_epoch=1), 0)
    assert state.isr.pending is second and state.isr.maximal == {1, 2, 3}


def test_a_new_leader_knows_nothing_of_its_followers() -> None:
    state = trio_leader()
    fetch(state, 2, 10)
    state.apply(image(leader=2, epoch=1, isr=(2,), replicas=(1, 2, 3), partition_epoch=1), 10)
    assert state.followers.get(2) is None and state.isr.committed == ()
    state.apply(image(epoch=2, isr=(1, 2), replicas=(1, 2, 3), partition_epoch=2), 10)
    progress = state.followers.get(2)
    assert progress is not None and progress.log_end_offset == -1
    assert not state.advance_high_watermark()


@pytest.mark.parametrize("epoch", [1, 2, 5])
def test_a_leader_in_a_new_epoch_knows_nothing_of_its_followers(epoch: int) -> None:
    """Another may have led since, unseen, and followers may have cut what they had for it."""
    state = trio_leader((1, 2))
    fetch(state, 2, 9)
    assert state.high_watermark == 9
    assert state.apply(
        image(epoch=epoch, isr=(1, 2), replicas=(1, 2, 3), partition_epoch=epoch), 10, 500
    )
    progress = state.followers.get(2)
    assert progress is not None and progress.log_end_offset == -1
    assert state.epoch_start_offset == 10
    state.on_append(11, 500)
    assert not state.advance_high_watermark(500) and state.high_watermark == 9
    assert state.check_isr(500 + LAG_MS) is None
    assert state.check_isr(501 + LAG_MS) is not None
    fetch(state, 2, 11)
    assert state.high_watermark == 11


def test_a_change_of_the_isr_alone_begins_no_epoch() -> None:
    state = trio_leader((1, 2, 3), end=4)
    fetch(state, 2, 4)
    assert not state.apply(image(isr=(1, 2), replicas=(1, 2, 3), partition_epoch=1), 9)
    assert state.epoch_start_offset == 4
    assert state.advance_high_watermark() and state.high_watermark == 4


def test_a_replica_added_by_reassignment_is_followed_from_nothing() -> None:
    state = trio_leader((1, 2), end=4)
    moved = image(isr=(1, 2), replicas=(1, 2, 4), partition_epoch=1)
    assert state.check_follower(4, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert state.check_follower(4, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    state.apply(moved, 4)
    assert state.check_follower(4, 0) is ErrorCode.NONE
    assert state.check_follower(3, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_offsets_of_a_new_leader_are_behind_until_its_epoch_began() -> None:
    state = trio_leader((1, 2), end=10)
    assert state.offset_is_behind_epoch
    fetch(state, 2, 10)
    assert not state.offset_is_behind_epoch


def test_acknowledgements_need_enough_replicas_after_the_append_too() -> None:
    state = trio_leader((1, 2), end=10)
    state.min_insync_replicas = 2
    fetch(state, 2, 10)
    assert state.check_committed() is ErrorCode.NONE
    state.apply(image(isr=(1,), replicas=(1, 2, 3), partition_epoch=1), 10)
    assert state.check_committed() is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_the_low_watermark_waits_for_live_followers_only() -> None:
    brokers = FixedBrokers({1: 11, 2: 12, 3: 13})
    state = trio_leader((1, 2), brokers=brokers)
    assert state.followers.low_watermark(6) == -1
    for replica, start in ((2, 5), (3, 2)):
        state.on_follower_fetch(replica, -1, 10, start, 10, 0)
    assert state.followers.low_watermark(6) == 2
    del brokers.epochs[3]
    assert state.followers.low_watermark(6) == 5


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (4, ErrorCode.NONE),
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epoch_of_what_was_fetched(epoch: int, expected: ErrorCode) -> None:
    state = PartitionState(1, 0, BROKERS)
    state.apply(image(leader=2, epoch=4, isr=(1, 2)), 0)
    assert state.check_followed(epoch) is expected
    state.apply(image(leader=1, epoch=5, isr=(1, 2), partition_epoch=1), 0)
    assert state.check_followed(epoch) is ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- resignation --


@pytest.mark.parametrize(
    ("isr", "ends", "min_isr", "expected"),
    [
        ((1, 2, 3), {2: 10, 3: 10}, 2, (2, 3)),
        ((1, 2, 3), {2: 10, 3: 10}, 1, (2, 3)),
        ((1, 2), {2: 10, 3: 4}, 1, (2,)),
        ((1, 2, 3), {2: 10, 3: 9}, 2, None),  # it lacks a record, which acks=1 has acknowledged
        ((1, 2, 3), {2: 10}, 2, None),  # nobody knows what 3 has
        ((1, 2), {2: 10, 3: 4}, 2, None),  # acks=all would be refused there, too
        ((1,), {2: 4, 3: 4}, 1, None),
    ],
)
def test_a_leader_resigns_to_those_who_have_all(
    isr: tuple[int, ...], ends: dict[int, int], min_isr: int, expected: tuple[int, ...] | None
) -> None:
    state = trio_leader(isr, end=10)
    state.min_insync_replicas = min_isr
    for replica, end in ends.items():
        state.on_follower_fetch(replica, 10 + replica, end, 0, 10, 0)
    proposal = state.propose_resignation()
    assert (None if proposal is None else proposal.broker_ids) == expected
    assert state.propose_resignation() is None or expected is None, "one at a time"


def test_a_leader_that_resigns_leads_until_it_learns_of_its_successor() -> None:
    state = trio_leader((1, 2, 3), end=10)
    fetch(state, 2, 10)
    fetch(state, 3, 10)
    proposal = state.propose_resignation()
    assert proposal is not None
    assert state.isr.maximal == {1, 2, 3} and state.check_append(-1) is ErrorCode.NONE
    answer = IsrAnswer(ErrorCode.NEW_LEADER_ELECTED)
    assert state.on_isr_answer(proposal, answer, 0) == Effects()
    assert state.is_leader and state.isr.maximal == {1, 2, 3}
    assert state.check_isr(10 * LAG_MS) is None
    state.apply(image(leader=2, epoch=1, isr=(2, 3), replicas=(1, 2, 3), partition_epoch=1), 10)
    assert state.role is Role.FOLLOWER
