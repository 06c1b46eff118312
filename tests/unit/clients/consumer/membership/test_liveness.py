"""When a member has to send a heartbeat, when it has stayed away, when a session is over."""

from __future__ import annotations

import math

from kraftrio.clients.consumer.membership.liveness import Liveness
from kraftrio.clients.consumer.membership.requests import MembershipConfig

CONFIG = MembershipConfig(
    group_id="g",
    session_timeout_ms=10_000,
    heartbeat_interval_ms=3_000,
    max_poll_interval_ms=60_000,
    retry_backoff_ms=100,
)


def test_who_never_polled_is_away() -> None:
    liveness = Liveness(CONFIG)
    assert liveness.poll_deadline_ms == -math.inf
    assert liveness.poll_is_overdue(0)


def test_a_poll_lasts_for_its_interval() -> None:
    liveness = Liveness(CONFIG)
    liveness.polled(5_000)
    assert liveness.poll_deadline_ms == 65_000
    assert not liveness.poll_is_overdue(65_000), "that moment still counts"
    assert liveness.poll_is_overdue(65_001)


def test_heartbeats_follow_each_interval_and_soon_after_a_failure() -> None:
    liveness = Liveness(CONFIG)
    liveness.joined(1_000)
    assert liveness.next_heartbeat_ms == 4_000
    liveness.heartbeat_sent(4_000)
    assert liveness.next_heartbeat_ms == 7_000
    liveness.heartbeat_failed(7_050)
    assert liveness.next_heartbeat_ms == 7_150


def test_a_session_is_over_when_nothing_came_for_its_time() -> None:
    liveness = Liveness(CONFIG)
    liveness.joined(1_000)
    liveness.heartbeat_sent(4_000)
    assert not liveness.session_is_over(11_000), "sending is not hearing"
    assert liveness.session_is_over(11_001)
    liveness.coordinator_seen(11_001)
    assert not liveness.session_is_over(21_001)
