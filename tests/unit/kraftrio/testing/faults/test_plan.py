"""Faults by seed: the same each time, checked when they are written, and shrunk to those needed."""

from __future__ import annotations

import itertools

import pytest

from kraftrio.testing import Fault, KafkaWorld
from kraftrio.testing.faults.plan import KINDS, REFUSALS, drawn, shrunk
from kraftrio.testing.faults.requests import api_key_of, error_code_of

_LASTING = {"kill", "power cut", "pause", "full disk", "failing disk", "cut"}


def test_a_seed_is_one_plan() -> None:
    """Different seeds differ, each has its faults in order, and one node at a time is away."""
    plans = [drawn(seed, 3) for seed in range(200)]
    assert plans == [drawn(seed, 3) for seed in range(200)]
    assert len(set(map(str, plans))) > 190
    assert all(1 <= len(plan) <= 6 for plan in plans)
    assert {fault.kind for plan in plans for fault in plan} == set(KINDS)
    for plan in plans:
        away = [fault for fault in plan if fault.kind in _LASTING]
        assert all(a.at_s + a.length_s <= b.at_s + 0.02 for a, b in itertools.pairwise(away))


def test_one_node_keeps_what_it_has() -> None:
    """Where nobody else has it, and nobody else can lead."""
    kinds = {fault.kind for seed in range(200) for fault in drawn(seed, 1)}
    assert set(KINDS) - kinds == {"power cut", "move leaders", "move coordinators"}


def test_refusals_are_to_be_tried_again() -> None:
    """But for that of a member that is unknown, which joins again."""
    for request, errors in REFUSALS.items():
        api_key_of(request)
        for error in errors:
            assert error_code_of(error).retriable or error in (
                "UNKNOWN_MEMBER_ID",
                "REBALANCE_IN_PROGRESS",
            )


def test_a_plan_is_shrunk() -> None:
    """To what is needed together; to nothing, where the test fails without faults."""
    faults = [Fault(number, "kill", "n1", 1) for number in range(6)]
    wanted = {faults[1], faults[4]}
    assert shrunk(faults, lambda fewer: wanted <= set(fewer)) == [faults[1], faults[4]]
    assert shrunk(faults, lambda fewer: True) == []


def test_faults_are_described() -> None:
    assert str(Fault(1, "kill", "n1", 2)) == "1.00 s: kill n1 for 2.00 s"
    assert str(Fault(1, "lose answer", "Produce")) == "1.00 s: lose answer Produce"
    assert str(Fault(1, "clock", "every", -2)) == "1.00 s: clock every by -2.00 s"


@pytest.mark.parametrize(
    ("kind", "target", "length_s", "said"),
    [
        ("kil", "n1", 1, "no fault 'kil'; do you mean 'kill'?"),
        ("earthquake", "n1", 1, "no fault 'earthquake'; there are kill, power cut, "),
        ("cut", "n1", 1, "'cut' cannot hit 'n1': expected a direction, such as \"program>n1\""),
        ("kill", "", 1, "expected a node"),
        ("kill", "n1", -1, "its times are seconds, 0 or more"),
        ("delay", "Prodce", 1, "no request 'Prodce'; do you mean 'Produce'?"),
        ("delay", "Produce NOT_COORDINATOR", 1, "expected a request, such as"),
        ("refuse", "Produce", 0, "expected a request and an error, such as"),
        ("refuse", "Produce NOT_CORDINATOR", 0, "no error .*; do you mean 'NOT_COORDINATOR'?"),
    ],
)
def test_what_is_no_fault(kind: str, target: str, length_s: float, said: str) -> None:
    """One sentence that says what to write instead."""
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        Fault(0, kind, target, length_s)


def test_faults_of_nodes_that_are_not_there() -> None:
    for kind, target in [("kill", "n4"), ("cut", "program>n4"), ("clock", "n4")]:
        with pytest.raises(ValueError, match="there is no node 'n4': the nodes are n1, n2, n3"):
            KafkaWorld(faults=[Fault(0, kind, target, 1)])
    KafkaWorld(faults=[Fault(0, "clock", "every", 1), Fault(0, "cut", "a>program", 1)])
