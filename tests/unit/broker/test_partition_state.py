"""Roles, leader epochs, ISR checks and the high watermark of one replica."""

from __future__ import annotations

import pytest

from kraftrio.broker.partition_state import PartitionState, Role
from kraftrio.kraft_meta.image import PartitionImage
from kraftrio.wire.errors import ErrorCode


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


def test_nobody_is_served_before_the_controller_has_spoken() -> None:
    state = PartitionState(1, 0, BROKERS)
    assert state.role is Role.NONE
    assert state.check_leader(-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert state.check_append(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_new_leader_of_a_single_replica_commits_its_whole_log() -> None:
    state = leader(high_watermark=3, log_end_offset=10)
    assert state.advance_high_watermark()
    assert state.high_watermark == 10


def test_append_advances_the_high_watermark_once() -> None:
    state = leader()
    assert state.on_append(5)
    assert state.high_watermark == 5
    assert not state.advance_high_watermark()


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
