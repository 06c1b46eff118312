"""The committed ISR, the proposal in flight, and the maximal ISR that follows from both."""

from __future__ import annotations

from kraftrio.broker.replica.state.isr import Isr, IsrMember, IsrProposal


def proposal(*broker_ids: int) -> IsrProposal:
    return IsrProposal(0, 0, tuple(IsrMember(broker_id, -1) for broker_id in broker_ids))


def test_the_maximal_isr_has_whom_a_proposal_adds_and_whom_it_removes() -> None:
    isr = Isr()
    isr.commit((1, 2))
    assert isr.maximal == {1, 2}
    isr.propose(proposal(1, 3))
    assert (isr.committed, isr.maximal) == ((1, 2), {1, 2, 3})
    isr.settle()
    assert isr.maximal == {1, 2} and isr.pending is None


def test_news_of_something_else_leaves_the_proposal_in_flight() -> None:
    isr = Isr()
    isr.commit((1,))
    isr.propose(proposal(1, 2))
    isr.commit((1, 3))
    assert isr.pending == proposal(1, 2) and isr.maximal == {1, 2, 3}


def test_who_does_not_lead_knows_no_isr() -> None:
    isr = Isr()
    isr.commit((1,))
    isr.propose(proposal(1, 2))
    isr.clear()
    assert (isr.committed, isr.maximal, isr.pending) == ((), frozenset(), None)
