"""What happens to groups, as it is logged: who came and went, and why they rebalanced."""

from __future__ import annotations

from typing import Any

from kraftrio.broker.coordinator.groups.events import group_events
from kraftrio.broker.coordinator.outcome import Outcome
from tests.unit.broker.coordinator.groups.consumer.consumer_context import ConsumerContext
from tests.unit.broker.coordinator.groups.group_context import GroupContext, Properties


class LoggedEvents:
    """The events of all outcomes that a context carries out."""

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.events: list[str] = []
        self._is_unasked = False
        carry_out, advance = context.carry_out, context.advance

        def logged(outcome: Outcome) -> Any:
            groups = self.context.shard.groups
            for event in group_events(groups, outcome, by_deadline=self._is_unasked):
                shown = ("reason", "members", "generation", "member")
                fields = [f"{key}={event.fields[key]}" for key in shown if key in event.fields]
                self.events.append(" ".join([event.message, *fields]))
            return carry_out(outcome)

        def unasked(delay_ms: float) -> None:
            self._is_unasked = True
            advance(delay_ms)
            self._is_unasked = False

        context.carry_out = logged  # type: ignore[method-assign]
        context.advance = unasked  # type: ignore[method-assign]

    def take(self) -> list[str]:
        events, self.events = self.events, []
        return events


def test_a_classic_group_logs_the_reasons_of_rebalances() -> None:
    logged = LoggedEvents(GroupContext(Properties(group_initial_rebalance_delay_ms=0)))
    context = logged.context
    context.start_member()
    context.advance(1)
    joined, began, done = logged.take()
    member = joined.removeprefix("member joined member=")
    assert joined.startswith("member joined member=") and member
    assert began == "group rebalancing reason=a member joined members=1"
    assert done == "group rebalanced members=1 generation=1"
    context.advance(400_000)
    assert logged.take() == [
        f"member expired member={member}",
        "group rebalancing reason=a member expired members=0",
        "group rebalanced members=0 generation=2",
    ]


def test_events_of_a_consumer_group_follow_from_its_records() -> None:
    logged = LoggedEvents(ConsumerContext())
    context = logged.context
    assert isinstance(context, ConsumerContext)
    context.add_topic("topic", 2)
    context.join("one")
    assert logged.take() == [
        "member joined member=one",
        "group rebalanced reason=a member joined members=1",
    ]
    context.beat("one", context.consumer_group.epoch, owned={})
    assert logged.take() == []
    context.join("two")
    assert logged.take() == [
        "member joined member=two",
        "group rebalanced reason=a member joined members=2",
    ]
    context.beat("two", -1)
    assert logged.take() == ["member left member=two"]
    context.advance(100_000)
    assert logged.take() == ["member expired member=one"]
