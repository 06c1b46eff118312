"""Consumer groups under random members, topics, deaths, failovers and appends that fail.

After each step: the state is what the log makes of it again; no partition belongs to two members;
no two members that live own the same one. At the end, with nothing failing, everyone has its part.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator.groups.consumer.consumer_context import (
    ConsumerContext,
    Member,
    settle,
    topic_id_of,
)
from tests.unit.broker.coordinator.groups.consumer.test_classic_members import ClassicMember

STEPS = 60
Held = set[tuple[bytes, int]]


def state_of(context: ConsumerContext) -> Any:
    """All that a group's records say."""
    group = context.shard.groups.find(context.group_id, ConsumerGroup)
    if group is None:
        return None
    subscriptions = group.subscriptions
    return (
        (group.epoch, group.metadata_hash, group.has_partition_metadata),
        (group.target.epoch, group.target.timestamp_ms, dict(group.target.members)),
        dict(group.members),
        dict(group.static_members),
        (dict(subscriptions.by_name), dict(subscriptions.by_regex), dict(subscriptions.regexes)),
        dict(subscriptions.resolved),
        group.classic_member_count,
        {
            (topic_id, index): group.partition_epochs.get(topic_id, index)
            for member in group.members.values()
            for partitions in (member.assigned, member.pending_revocation)
            for topic_id, indexes in partitions.items()
            for index in indexes
        },
    )


class Play:
    """A group and its members, and what happens to them by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.context = ConsumerContext()
        self.context.properties.group_consumer_migration_policy = "upgrade"
        interval_ms = self.random.choice([0, 0, 1_000])
        self.context.settings.values["consumer.assignment.interval.ms"] = interval_ms
        self.partition_counts = {"x": 3}
        self.context.add_topic("x", 3)
        self.members: list[Member] = []
        self.classic: list[ClassicMember] = []
        self.count = 0

    # --- steps ---

    def step(self) -> None:
        """Do something."""
        steps = [self.join, self.beat, self.beat, self.beat, self.beat, self.leave, self.die]
        steps += [self.pass_time, self.change_topics, self.fail_over, self.fail_append]
        steps += [self.join_classic, self.follow_classic, self.follow_classic]
        self.random.choice(steps)()
        self.check()

    def join(self) -> None:
        if len(self.members) < 5:
            self.count += 1
            topics = self.random.choice([("x",), ("x", "y"), ("y",)])
            instance_id = self.random.choice([None, None, f"i{self.count}"])
            member = Member(self.context, f"m{self.count}", topics, instance_id)
            self.members.append(member)
            member.beat()

    def beat(self) -> None:
        if self.members:
            self.random.choice(self.members).beat()

    def leave(self) -> None:
        for member in self._one(self.members):
            if member.epoch:
                epoch = -1 if member.instance_id is None else self.random.choice([-1, -2])
                try:
                    member.leave(epoch)
                except KafkaError as error:
                    assert error.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
                    member.epoch, member.owned = 0, {}
                if epoch == -1 or self.random.random() < 0.5:
                    self.members.remove(member)
                else:
                    self.count += 1
                    member.member_id = f"m{self.count}"

    def die(self) -> None:
        """Without a word; what it owned is its own until its session ends."""
        for member in self._one(self.members):
            if self.random.random() < 0.3:
                self.members.remove(member)

    def pass_time(self) -> None:
        self.advance(self.random.choice([10, 1_000, 1_000, 20_000, 46_000]))

    def advance(self, delay_ms: int) -> None:
        """Let time pass; those whose session is over by then do not own anything."""
        self.context.advance(delay_ms)
        known = self.known()
        for member in self.members:
            if member.member_id not in known:
                member.epoch, member.owned = 0, {}
        self.classic = [one for one in self.classic if one.member_id in known]

    def known(self) -> set[str]:
        group = self.context.shard.groups.find("group", ConsumerGroup)
        return set() if group is None else set(group.members)

    def change_topics(self) -> None:
        name = self.random.choice(["x", "y"])
        count = self.partition_counts.get(name, 0)
        if name == "y" and self.count > 6:  # for good: another one would have another id
            if count:
                self.context.remove_topic(name)
                del self.partition_counts[name]
        elif count < 6:
            self.context.add_topic(name, count + 2, first=count)
            self.partition_counts[name] = count + 2

    def fail_over(self) -> None:
        """Another broker coordinates from now on."""
        self.context = self.reloaded()
        for member in self.members:
            member.context = self.context
        for classic in self.classic:
            classic.context = self.context

    def fail_append(self) -> None:
        """Nothing is left of what could not be appended."""
        before = state_of(self.context)
        self.context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        for member in self._one(self.members):
            fields: dict[str, Any] = {"topics": member.topics, "rebalance_timeout_ms": 60_000}
            if member.instance_id is not None:
                fields["instance_id"] = member.instance_id
            with suppress(KafkaError):
                self.context.beat(member.member_id, member.epoch, owned=member.owned, **fields)
            if self.random.random() < 0.5:
                self.context.advance(50_000)
        assert state_of(self.context) == before
        self.context.append_error = ErrorCode.NONE
        self.advance(500)

    def join_classic(self) -> None:
        group = self.context.shard.groups.find("group", ConsumerGroup)
        if group is not None and group.members and len(self.classic) < 2:
            member = ClassicMember(self.context, topic="x")
            member.join()
            self.classic.append(member)
            self._follow(member)

    def follow_classic(self) -> None:
        for member in self._one(self.classic):
            self._follow(member)

    def _follow(self, member: ClassicMember) -> None:
        try:
            if member.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
                member.join()
            member.sync()
        except KafkaError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self.classic.remove(member)

    def _one(self, members: list[Any]) -> list[Any]:
        return [self.random.choice(members)] if members else []

    # --- what holds ---

    def reloaded(self) -> ConsumerContext:
        """Another broker takes over: what its shard has made of the log."""
        context = self.context
        other = ConsumerContext(
            context.properties, metadata=context.metadata, settings=context.settings
        )
        other.now, other.log = context.now, list(context.log)
        other._uuids = context._uuids + 100
        for offset, (key, value) in enumerate(context.log):
            other.shard.replay(offset, key, value, context.now)
        other.carry_out(other.shard.on_loaded(other.now))
        return other

    def check(self) -> None:
        """See the module."""
        assert state_of(self.reloaded()) == state_of(self.context)
        group = self.context.shard.groups.find("group", ConsumerGroup)
        held: Held = set()
        for member in group.members.values() if group is not None else ():
            for partitions in (member.assigned, member.pending_revocation):
                mine = {(topic, index) for topic, parts in partitions.items() for index in parts}
                assert not mine & held, "a partition belongs to two members"
                held |= mine
        owned: Held = set()
        for one in self.members:
            assert not one.partitions & owned, "two members own a partition"
            owned |= one.partitions
        for classic in self.classic:
            mine = {(topic_id_of("x"), index) for index in classic.partitions}
            assert not mine & owned, "a classic member owns a partition of another one"
            owned |= mine

    def end(self) -> None:
        """All have what they are to have."""
        self.join()
        self.advance(50_000)
        for member in self.members:
            member.beat()
        self.advance(2_000)
        for _ in range(8):
            settle(*self.members, rounds=1)
            for classic in list(self.classic):
                self._follow(classic)
            self.check()
        assert self.context.state == "Stable"
        wanted = {
            (topic_id_of(name), index)
            for name, count in self.partition_counts.items()
            for index in range(count)
            if any(name in member.topics for member in self.members)
        }
        assert set().union(*(member.partitions for member in self.members)) == wanted


@pytest.mark.parametrize("seed", range(12))
def test_random_groups(seed: int) -> None:
    """See the module."""
    play = Play(seed)
    for _ in range(STEPS):
        play.step()
    play.end()
