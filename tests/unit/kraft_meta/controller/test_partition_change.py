"""Partition changes: elections and the end of reassignments."""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.kraft_meta.controller.partition_change import Election, PartitionChange
from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.kraft_meta.metadata.records import (
    LEADER_RECOVERING,
    NO_LEADER_CHANGE,
    PartitionChangeRecord,
)

TOPIC_ID = b"t" * 16


def change(partition: PartitionImage, *, alive: Iterable[int]) -> PartitionChange:
    living = tuple(alive)
    return PartitionChange(TOPIC_ID, 0, partition, lambda replica: replica in living)


def partition(
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionImage:
    return PartitionImage(
        (1, 2, 3), isr, leader, 5, 7, adding_replicas=adding, removing_replicas=removing
    )


def test_nothing_changed_makes_no_record() -> None:
    """The present leader lives and is in sync."""
    assert change(partition(), alive=(1, 2, 3)).build() is None


def test_a_working_leader_stays_unless_the_preferred_one_is_asked_for() -> None:
    """ONLINE keeps replica 2, PREFERRED moves to 1."""
    current = partition(leader=2)
    assert change(current, alive=(1, 2, 3)).build() is None
    preferred = change(current, alive=(1, 2, 3))
    preferred.election = Election.PREFERRED
    assert preferred.build() == PartitionChangeRecord(TOPIC_ID, 0, leader=1)
    dead = change(current, alive=(2, 3))
    dead.election = Election.PREFERRED
    assert dead.build() is None


def test_a_clean_leader_is_preferred_to_an_unclean_one() -> None:
    """UNCLEAN looks beyond the ISR only when nobody in it lives."""
    clean = change(partition(isr=(1, 3)), alive=(2, 3))
    clean.election = Election.UNCLEAN
    assert clean.build() == PartitionChangeRecord(TOPIC_ID, 0, leader=3)
    unclean = change(partition(isr=(1, 3)), alive=(2,))
    unclean.election = Election.UNCLEAN
    record = unclean.build()
    assert record == PartitionChangeRecord(
        TOPIC_ID, 0, isr=(2,), leader=2, leader_recovery_state=LEADER_RECOVERING
    )


def test_an_empty_isr_is_not_recorded() -> None:
    """The last one stays in it, without a leader."""
    last = change(partition(isr=(1,)), alive=())
    last.isr = ()
    assert last.build() == PartitionChangeRecord(TOPIC_ID, 0, leader=-1)


def test_a_reassignment_ends_when_all_adding_replicas_are_in_sync() -> None:
    """Removed replicas leave replicas and ISR; the leader epoch ends even if the leader stays."""
    reassigning = partition(isr=(1, 2), adding=(3,), removing=(2,))
    assert change(reassigning, alive=(1, 2, 3)).build() is None
    caught_up = change(reassigning, alive=(1, 2, 3))
    caught_up.isr = (1, 2, 3)
    assert caught_up.build() == PartitionChangeRecord(
        TOPIC_ID,
        0,
        isr=(1, 3),
        leader=1,
        replicas=(1, 3),
        removing_replicas=(),
        adding_replicas=(),
    )


def test_a_leader_that_is_removed_hands_over() -> None:
    """The next replica of the target leads."""
    reassigning = partition(isr=(1, 2), adding=(3,), removing=(1,))
    caught_up = change(reassigning, alive=(1, 2, 3))
    caught_up.isr = (1, 2, 3)
    record = caught_up.build()
    assert record is not None
    assert (record.leader, record.replicas, record.isr) == (2, (2, 3), (2, 3))


def test_an_isr_change_alone_keeps_the_leader_epoch() -> None:
    """No leader is named."""
    shrink = change(partition(), alive=(1, 2, 3))
    shrink.isr = (1, 2)
    record = shrink.build()
    assert record is not None
    assert record.leader == NO_LEADER_CHANGE
    assert partition().merge(record).leader_epoch == 5
