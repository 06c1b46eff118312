"""Strategies: what they give can be sent, survived, and shrunk."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from kraftrio import Producer
from kraftrio.testing import Fault, KafkaWorld, strategies
from kraftrio.testing.faults.plan import KINDS, LASTING, OF_SEVERAL

_FEW = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_MANY = settings(max_examples=30, deadline=None)
_SEARCH = settings(max_examples=500, database=None, phases=[Phase.generate, Phase.shrink])


@_FEW
@given(strategies.batches(max_size=5))
def test_a_batch_is_sent(batch: list[strategies.NewRecord]) -> None:
    """And read as it was."""
    world = KafkaWorld(brokers=1)

    async def send() -> None:
        await world.create_topic("orders", 1)
        async with Producer(world.bootstrap_servers) as producer:
            for record in batch:
                await producer.send("orders", **record._asdict())
        read = [
            strategies.NewRecord(r.value, r.key, list(r.headers), r.timestamp or 0)
            for r in await world.records("orders")
        ]
        assert read == batch

    world.run(send)


@_MANY
@given(
    st.integers(1, 3).flatmap(
        lambda count: st.tuples(st.just(count), strategies.faults(brokers=count))
    )
)
def test_faults_are_to_be_survived(plan: tuple[int, list[Fault]]) -> None:
    """By the rules of those that are drawn: in order, one broker away at a time."""
    count, faults = plan
    KafkaWorld(brokers=count, faults=faults)  # which checks them
    assert len(faults) <= 6
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    away = [fault for fault in faults if fault.kind in LASTING]
    assert all(a.at_s + a.length_s <= b.at_s for a, b in itertools.pairwise(away))
    if count == 1:
        assert not OF_SEVERAL & {fault.kind for fault in faults}


@_MANY
@given(st.data())
def test_kinds_are_chosen(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    faults = data.draw(strategies.faults(kinds=[kind]))
    assert {fault.kind for fault in faults} <= {kind}


def test_faults_are_shrunk() -> None:
    """To one that is left, at once."""
    found = find(strategies.faults(), lambda faults: len(faults) > 0, settings=_SEARCH)
    assert len(found) == 1
    assert found[0].at_s == 0


def test_what_breaks_programs_is_given() -> None:
    """Keys that come again, none, and the empty one; tombstones; headers that come twice."""
    looked_for: list[tuple[st.SearchStrategy[Any], Callable[[Any], bool]]] = [
        (st.lists(strategies.keys()), lambda keys: len(keys) > len(set(keys))),
        (strategies.keys(), lambda key: key is None),
        (strategies.keys(), lambda key: key == b""),
        (strategies.values(), lambda value: value is None),
        (strategies.headers(), lambda headers: len(dict(headers)) < len(headers)),
        (st.lists(strategies.timestamps()), lambda times: times != sorted(times)),
    ]
    for strategy, wanted in looked_for:
        assert wanted(find(strategy, wanted, settings=_SEARCH))


def test_kinds_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="1 brokers have no fault 'power cut': kill, pause"):
        strategies.faults(brokers=1, kinds=["power cut"])
    with pytest.raises(ValueError, match="3 brokers have no fault 'kil'"):
        strategies.faults(kinds=["kil"])


def test_without_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says what to install."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "kraftrio.testing.strategies")
    with pytest.raises(ImportError, match="strategies needs hypothesis: pip install hypothesis"):
        import_module("kraftrio.testing.strategies")
