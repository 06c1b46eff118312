"""What heartbeats of share groups carry."""

from __future__ import annotations

from kraftrio.clients.share.heartbeats import ShareHeartbeatRequests


def test_topics_are_sent_when_they_have_changed() -> None:
    heartbeats = ShareHeartbeatRequests("g", "r", frozenset({"b", "a"}))
    first = heartbeats.make("m", 0, None)
    assert (first.group_id, first.member_id, first.member_epoch) == ("g", "m", 0)
    assert (first.rack_id, first.subscribed_topic_names) == ("r", ["a", "b"])
    quiet = heartbeats.make("m", 1, {})
    assert (quiet.rack_id, quiet.subscribed_topic_names) == (None, None)
    heartbeats.topics = frozenset({"c"})
    assert heartbeats.make("m", 1, {}).subscribed_topic_names == ["c"]
    heartbeats.forget()
    again = heartbeats.make("m", 1, {})
    assert (again.rack_id, again.subscribed_topic_names) == ("r", ["c"])
    leaving = heartbeats.leave("m")
    assert (leaving.member_epoch, leaving.subscribed_topic_names) == (-1, None)
