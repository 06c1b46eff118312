"""What heartbeats of consumer groups carry, and what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.clients.config import make_config
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.members.heartbeats import ConsumerHeartbeatRequests

A, B = b"a" * 16, b"b" * 16


def made(**settings: Any) -> ConsumerHeartbeatRequests:
    config = make_config(ConsumerConfig, "localhost:1", {"group_id": "g", **settings})
    heartbeats = ConsumerHeartbeatRequests.of("g", config)
    heartbeats.topics = frozenset({"b", "a"})
    return heartbeats


def test_the_first_heartbeat_is_full() -> None:
    """Also the rack, the assignor and how long a rebalance may take the member."""
    heartbeats = made(
        client_rack="r",
        group_remote_assignor="range",
        max_poll_interval_ms=7,
        group_instance_id="i",
    )
    first = heartbeats.make("m", 0, None)
    assert (first.group_id, first.member_id, first.member_epoch) == ("g", "m", 0)
    assert (first.instance_id, first.rack_id, first.server_assignor) == ("i", "r", "range")
    assert (first.rebalance_timeout_ms, first.subscribed_topic_names) == (7, ["a", "b"])
    assert (first.topic_partitions, first.subscribed_topic_regex) == ([], None)


def test_later_ones_carry_what_has_changed() -> None:
    heartbeats = made()
    heartbeats.make("m", 0, None)
    quiet = heartbeats.make("m", 1, None)
    assert (quiet.rebalance_timeout_ms, quiet.subscribed_topic_names) == (-1, None)
    assert (quiet.topic_partitions, quiet.subscribed_topic_regex) == (None, None)
    owning = heartbeats.make("m", 1, {A: frozenset({2, 1})})
    assert owning.topic_partitions is not None
    assert [(t.topic_id, t.partitions) for t in owning.topic_partitions] == [(A, [1, 2])]
    assert heartbeats.make("m", 1, {A: frozenset({1, 2})}).topic_partitions is None
    assert heartbeats.make("m", 1, {}).topic_partitions == []
    heartbeats.topics = frozenset({"c"})
    assert heartbeats.make("m", 1, {}).subscribed_topic_names == ["c"]
    assert heartbeats.make("m", 1, {}).subscribed_topic_names is None


def test_a_pattern_is_sent_and_withdrawn() -> None:
    """An empty one means that there is none any more."""
    heartbeats = made()
    heartbeats.topics, heartbeats.pattern = frozenset(), "x.*"
    first = heartbeats.make("m", 0, None)
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ([], "x.*")
    assert heartbeats.make("m", 1, None).subscribed_topic_regex is None
    heartbeats.topics, heartbeats.pattern = frozenset({"a"}), None
    changed = heartbeats.make("m", 1, None)
    assert (changed.subscribed_topic_names, changed.subscribed_topic_regex) == (["a"], "")
    assert heartbeats.make("m", 1, None).subscribed_topic_regex is None


def test_after_a_lost_answer_everything_is_sent_again() -> None:
    """Such a heartbeat is answered with the assignment, which the lost answer may have held."""
    heartbeats = made()
    heartbeats.make("m", 0, None)
    heartbeats.forget()
    again = heartbeats.make("m", 3, None)
    assert (again.member_epoch, again.subscribed_topic_names) == (3, ["a", "b"])
    assert (again.topic_partitions, again.rebalance_timeout_ms) == ([], 300_000)
    heartbeats.forget()
    owning = heartbeats.make("m", 3, {B: frozenset({0})})
    assert owning.topic_partitions is not None and owning.topic_partitions[0].topic_id == B


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving(instance_id: str | None, epoch: int) -> None:
    request = made(group_instance_id=instance_id).leave("m")
    assert (request.member_id, request.member_epoch, request.instance_id) == (
        "m",
        epoch,
        instance_id,
    )
    assert request.subscribed_topic_names is None
