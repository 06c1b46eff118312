"""A request that takes long says where its time went and why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kraftrio.broker.log.sync_times import SyncTimes
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.resources import ServerResources
from kraftrio.broker.server.slow_requests import SlowRequests
from kraftrio.broker.server.usage.request_figures import RequestTimes
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.framing import RequestStart

MS = 1_000_000


class Slow:
    """Requests of a node whose clock the test moves; more than 100 ms is slow."""

    def __init__(self, limit_ms: int = 100) -> None:
        self.now = 0
        self.syncs = SyncTimes()
        self.resources = ServerResources(ticks_ns=lambda: self.now)
        self.slow = SlowRequests(self.resources, lambda: limit_ms, self.syncs)

    def request(self, api_key: ApiKey = ApiKey.PRODUCE, *, queue: int = 0) -> RequestTimes:
        """One that came now, and is begun after so many ms."""
        start = RequestStart(api_key, 9, 1, "my app", 10)
        client = ClientInfo("10.0.0.7", 5000, "L")
        times = RequestTimes(start, client, self.now * MS, (self.now + queue) * MS, 100)
        times.handled = times.completed = times.began
        self.resources.requests.parked[times] = None
        return times

    def look(self, now_ms: int) -> None:
        self.now = now_ms * MS
        self.slow.look(self.resources.slow_requests.nanoseconds)

    def logged(self, times: RequestTimes, sent_ms: int, caplog: Any) -> dict[str, object]:
        """The fields of the line about a request."""
        caplog.clear()
        self.slow.report(times, sent_ms * MS)
        (record,) = caplog.records
        assert record.getMessage() == "slow request" and record.levelname == "WARNING"
        fields: dict[str, object] = record.kraftrio_fields
        return fields


def test_who_is_waited_for_is_asked_while_it_is(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    times = slow.request()
    behind = ["replication of t-0 to 3"]
    times.wait_for(lambda: behind[0] if behind else "")
    slow.look(20)
    assert times.why == "", "it is not asked while all is well"
    slow.look(60)
    behind.clear()
    slow.look(80)
    times.completed = 150 * MS
    fields = slow.logged(times, 151, caplog)
    assert fields["why"] == "replication of t-0 to 3"
    assert [fields[f"{part}_ms"] for part in ("total", "queue", "local", "remote", "send")] == [
        151, 0, 0, 150, 1
    ]  # fmt: skip
    assert (fields["api"], fields["client_id"], fields["client"]) == (
        "Produce", "my app", "10.0.0.7:5000"
    )  # fmt: skip


def test_what_does_not_say_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    times = slow.request(ApiKey.CREATE_TOPICS)
    times.completed = 150 * MS
    assert slow.logged(times, 150, caplog)["why"] == (
        "the controller, and the commit of its decision"
    )


def test_a_disk_that_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    times = slow.request()
    slow.syncs.add("/data/t-0/0.log", 10 * MS, 130 * MS)
    times.handled = times.completed = 140 * MS
    assert slow.logged(times, 140, caplog)["why"] == "fsync of /data/t-0/0.log took 120 ms"


def test_a_client_that_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    times = slow.request(ApiKey.FETCH)
    times.completed, times.response_bytes = 500 * MS, 9999  # it had asked to wait
    assert slow.logged(times, 700, caplog)["why"] == "its client takes 9999 bytes slowly"


def test_a_turn_that_comes_late_is_not_the_clients_fault(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    times = slow.request()
    times.handled = times.completed = 120 * MS
    times.turn = 700 * MS
    assert slow.logged(times, 701, caplog)["why"] == "its own work"


def test_others_that_came_before(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    times = slow.request(queue=300)
    times.handled = times.completed = 301 * MS
    why = slow.logged(times, 310, caplog)["why"]
    assert why == "the event loop was busy with other requests"
    times = slow.request()
    times.handled = times.completed = 300 * MS
    assert slow.logged(times, 310, caplog)["why"] == "its own work"


def test_nothing_is_slow_without_a_limit() -> None:
    assert Slow(limit_ms=0).resources.slow_requests.nanoseconds == math.inf
