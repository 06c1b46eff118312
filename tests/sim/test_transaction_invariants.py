"""Where the invariants hold committed data to end."""

from __future__ import annotations

from tests.sim.transaction_invariants import Span, StableData


def test_decided_transactions_hold_back_until_their_marker_is_committed() -> None:
    """The oldest one counts, as far as the log still has something of it."""
    known = StableData(end=30, open={9: 25}, spans=[Span(12, 11, 3), Span(16, 13, 3)])
    assert known.last_stable_offset(30) == 25, "one is open"
    assert known.last_stable_offset(20) == 20
    assert known.last_stable_offset(16) == 13
    assert known.last_stable_offset(12) == 11
    removed = {13: 15}
    assert known.last_stable_offset(16, lambda span: removed[span.first_offset]) == 15
    assert known.last_stable_offset(16, lambda span: span.marker_offset) == 16
