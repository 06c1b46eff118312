"""What came of acknowledgements, for callback and commit."""

from __future__ import annotations

from typing import Any

from kraftrio.clients.errors import InvalidRecordStateError
from kraftrio.clients.share.acknowledgements import GAP, TopicIdPartition
from kraftrio.clients.share.results import AcknowledgementResults
from kraftrio.wire.primitives import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
P0, P1 = TopicIdPartition(b"t" * 16, T0), TopicIdPartition(b"t" * 16, T1)


def test_each_partition_has_its_own_outcome() -> None:
    """Gaps are nobody's concern; an error outlives a success."""
    reported: list[Any] = []
    results = AcknowledgementResults(lambda error: None)
    results.callback = lambda *outcome: reported.append(outcome)
    error = InvalidRecordStateError()
    with results.collected() as outcome, results.collected() as other:
        results.answered({P0: {3: 1, 1: 1, 2: GAP}, P1: {0: 1}}, {P1: error})
        results.answered({P1: {5: 1}}, {})
        results.answered({P0: {9: GAP}}, {})
    results.failed({P0: {7: 1}}, error)
    assert outcome == other == {T0: None, T1: error}
    assert reported == [(T0, [1, 3], None), (T1, [0], error), (T1, [5], None), (T0, [7], error)]


def test_what_a_callback_raises_is_the_programs() -> None:
    failures: list[Exception] = []
    results = AcknowledgementResults(failures.append)

    def callback(*outcome: Any) -> None:
        raise KeyError("mine")

    results.callback = callback
    results.answered({P0: {1: 1}}, {})
    assert [type(each) for each in failures] == [KeyError]


def test_requests_on_their_way_are_counted() -> None:
    results = AcknowledgementResults(lambda error: None)
    results.sent({})
    assert results.in_flight == 0
    results.sent({P0: {1: 1}})
    assert results.in_flight == 1
    results.ended({P0: {1: 1}})
    assert results.in_flight == 0
