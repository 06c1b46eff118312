"""Acknowledgements that wait to be sent, and how they are written."""

from __future__ import annotations

import pytest

from kraftrio.clients.share.acknowledgements import (
    GAP,
    AcknowledgeType,
    PendingAcknowledgements,
    TopicIdPartition,
    batches_of,
    is_renewing,
)
from kraftrio.wire.primitives import TopicPartition

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
P0 = TopicIdPartition(b"t" * 16, TopicPartition("t", 0))
P1 = TopicIdPartition(b"t" * 16, TopicPartition("t", 1))


@pytest.mark.parametrize(
    ("offsets", "batches"),
    [
        ({}, []),
        ({7: 1}, [(7, 7, [1])]),
        ({3: 1, 2: 1, 1: 1}, [(1, 3, [1])]),
        ({1: 1, 2: 2, 3: 0}, [(1, 3, [1, 2, 0])]),
        ({1: 1, 3: 1, 4: 2}, [(1, 1, [1]), (3, 4, [1, 2])]),
    ],
)
def test_runs_have_one_type_or_one_each(
    offsets: dict[int, int], batches: list[tuple[int, int, list[int]]]
) -> None:
    made = batches_of(offsets)
    assert [(b.first_offset, b.last_offset, b.acknowledge_types) for b in made] == batches


def test_each_broker_gets_the_acknowledgements_of_what_it_handed_out() -> None:
    """The last word on an offset counts; who waits for the first one is called once."""
    called: list[int] = []
    pending = PendingAcknowledgements(lambda: called.append(1))
    assert not pending
    pending.add(1, P0, 5, RELEASE)
    pending.add(1, P0, 5, ACCEPT)
    pending.add(2, P1, 5, RELEASE)
    assert called == [1] and sorted(pending.node_ids) == [1, 2]
    assert pending.has(1, P0, 5) and not pending.has(1, P1, 5)
    assert pending.take(1) == {P0: {5: ACCEPT}}
    assert pending.take(1) == {} and bool(pending)
    assert pending.take(2) == {P1: {5: RELEASE}}
    pending.add(1, P0, 6, GAP)
    assert called == [1, 1]


def test_what_goes_with_a_fetch() -> None:
    """Only of what is fetched there; a broker that renews locks reads nothing."""
    pending = PendingAcknowledgements(lambda: None)
    pending.add(1, P0, 5, ACCEPT)
    assert pending.fits_fetch(1, [P0]) and not pending.fits_fetch(1, [P1])
    assert pending.fits_fetch(2, [])
    pending.add(1, P0, 6, RENEW)
    assert not pending.fits_fetch(1, [P0])
    assert is_renewing(pending.take(1)) and not is_renewing({P0: {1: ACCEPT}})
