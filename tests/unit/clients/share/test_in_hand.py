"""What a share consumer's program has in hand, and what brokers are sent of it."""

from __future__ import annotations

import pytest

from kraftrio.clients.errors import AcknowledgementStateError
from kraftrio.clients.share.acknowledgements import GAP, AcknowledgeType, TopicIdPartition
from kraftrio.clients.share.in_hand import InHand
from kraftrio.clients.share.records import ShareBatch, ShareRecord, read_acquired
from kraftrio.wire.messages.share_fetch import AcquiredRecords
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.share.share_brokers import batch_bytes

P0 = TopicIdPartition(b"t" * 16, TopicPartition("t", 0))
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def holding(*counts: int, explicit: bool = False, locked_until_s: float = 10.0) -> InHand:
    """Some batches of t-0 that node 1 has handed out."""
    in_hand = InHand(is_explicit=explicit, on_first=lambda: None)
    base = 0
    for count in counts:
        run = AcquiredRecords(first_offset=base, last_offset=base + count - 1, delivery_count=1)
        data = memoryview(batch_bytes(base, count))
        found = read_acquired(data, [run], check_crcs=True).found
        in_hand.add(ShareBatch(P0, 1, found, locked_until_s, in_hand.acknowledge))
        base += count
    return in_hand


def taken(in_hand: InHand) -> ShareRecord:
    record = in_hand.next_record(0)
    assert record is not None
    return record


def sent(in_hand: InHand) -> dict[int, int]:
    return dict(in_hand.pending.take(1).get(P0, {}))


def test_who_asks_for_more_has_finished() -> None:
    in_hand = holding(2, 1)
    assert taken(in_hand).offset == 0 and not in_hand.pending
    in_hand.finish()
    assert sent(in_hand) == {0: ACCEPT}
    assert [taken(in_hand).offset, taken(in_hand).offset] == [1, 2]
    assert in_hand.next_record(0) is None and in_hand.is_empty
    in_hand.finish()
    assert sent(in_hand) == {1: ACCEPT, 2: ACCEPT}


def test_the_ways_to_take_may_be_mixed() -> None:
    """What is left of a batch that went one by one comes as a batch."""
    in_hand = holding(3, 2)
    taken(in_hand)
    batch = in_hand.next_batch(0)
    assert batch is not None and [each.offset for each in batch] == [1, 2]
    rest = in_hand.next_batches(0, 1)
    assert [[each.offset for each in batch] for batch in rest] == [[3]]
    assert taken(in_hand).offset == 4


def test_records_whose_lock_is_over_are_not_handed_over() -> None:
    """Another member has them by now."""
    in_hand = holding(2, locked_until_s=10.0)
    assert in_hand.next_record(9.9) is not None
    assert in_hand.next_record(10.0) is None and in_hand.is_empty
    assert holding(2, locked_until_s=10.0).next_batch(10.0) is None


def test_what_did_not_reach_the_program_comes_again() -> None:
    """Put back, it is not in hand: it is neither accepted nor released, and comes next."""
    in_hand = holding(3, 2)
    assert taken(in_hand).offset == 0
    in_hand.finish()
    in_hand.put_back_record(taken(in_hand))
    in_hand.finish()
    assert sent(in_hand) == {0: ACCEPT}
    assert taken(in_hand).offset == 1
    in_hand.finish()
    in_hand.put_back(in_hand.next_batches(0, 10))
    in_hand.finish()
    assert sent(in_hand) == {1: ACCEPT}
    again = in_hand.next_batches(0, 10)
    assert [[each.offset for each in batch] for batch in again] == [[2], [3, 4]]


def test_something_has_to_be_said_of_each_record() -> None:
    """With explicit acknowledgements; the next call is possible once it was."""
    in_hand = holding(4, explicit=True)
    first, second, third, fourth = (taken(in_hand) for _ in range(4))
    first.accept()
    second.release()
    third.reject()
    with pytest.raises(AcknowledgementStateError, match="offset 3 of t-0"):
        in_hand.finish()
    fourth.renew()
    in_hand.finish()
    assert sent(in_hand) == {0: ACCEPT, 1: RELEASE, 2: REJECT, 3: RENEW}
    fourth.renew()
    assert sent(in_hand) == {3: RENEW}
    fourth.accept()
    in_hand.finish()
    assert sent(in_hand) == {3: ACCEPT}


def test_the_last_word_counts_until_it_is_sent() -> None:
    in_hand = holding(2, explicit=True)
    first, second = taken(in_hand), taken(in_hand)
    first.accept()
    first.reject()
    second.accept()
    second.renew()
    assert sent(in_hand) == {0: REJECT, 1: RENEW}
    with pytest.raises(AcknowledgementStateError, match="not in hand"):
        first.accept()
    second.release()
    assert sent(in_hand) == {1: RELEASE}


def test_a_record_that_was_not_handed_over_cannot_be_acknowledged() -> None:
    """Nor one of an earlier delivery."""
    in_hand = holding(1, explicit=True)
    stranger = taken(holding(1, explicit=True))
    with pytest.raises(AcknowledgementStateError, match="never handed over"):
        in_hand.acknowledge(stranger, ACCEPT)
    taken(in_hand)
    with pytest.raises(AcknowledgementStateError):
        in_hand.acknowledge(stranger, ACCEPT)


def test_implicit_acknowledgements_are_the_consumers() -> None:
    in_hand = holding(1)
    with pytest.raises(AcknowledgementStateError, match="share_acknowledgement_mode"):
        taken(in_hand).accept()


@pytest.mark.parametrize(
    ("explicit", "is_done", "said"),
    [(False, True, ACCEPT), (False, False, RELEASE), (True, True, RELEASE), (True, False, RELEASE)],
)
def test_the_end(explicit: bool, is_done: bool, said: AcknowledgeType) -> None:
    """What nobody has got yet the broker releases with the session."""
    in_hand = holding(3, explicit=explicit)
    taken(in_hand)
    in_hand.settle(is_done=is_done)
    assert sent(in_hand) == {0: said} and in_hand.is_empty


def test_gaps_are_acknowledged() -> None:
    in_hand = holding(1)
    in_hand.acknowledge_undelivered(1, P0, [7, 8], GAP)
    assert sent(in_hand) == {7: GAP, 8: GAP}
