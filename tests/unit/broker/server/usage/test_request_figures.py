"""The times of requests, from the arrival of their bytes until their answer has left."""

from __future__ import annotations

from kraftrio.base.histogram import Spread
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.usage.request_figures import RequestFigures, RequestTimes
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.framing import RequestStart

CLIENT = ClientInfo("10.0.0.7", 5000, "L")
MS = 1_000_000


def request(api_key: ApiKey = ApiKey.PRODUCE, received: int = 0) -> RequestTimes:
    """One that came at a time, was begun 1 ms later, handled for 2 ms and parked for 30 ms."""
    start = RequestStart(api_key, 9, 1, "app", 10)
    times = RequestTimes(start, CLIENT, received, received + MS, 100)
    times.handled, times.completed = received + 3 * MS, received + 33 * MS
    times.response_bytes = 50
    return times


def spread(figures: RequestFigures, name: str, *labels: str) -> Spread:
    found = figures.labelled_statistics()[name][labels]
    assert isinstance(found, Spread)
    return found


def test_stages_add_up_to_the_whole() -> None:
    figures = RequestFigures()
    assert figures.note(request(), 37 * MS) == 37 * MS
    stages = {
        stage: spread(figures, "stage_nanoseconds", "Produce", stage).total / MS
        for stage in ("queue", "local", "remote", "send")
    }
    assert stages == {"queue": 1, "local": 2, "remote": 30, "send": 4}
    assert spread(figures, "nanoseconds", "Produce").total == 37 * MS
    assert spread(figures, "request_bytes", "Produce").total == 100
    assert spread(figures, "response_bytes", "Produce").total == 50


def test_a_long_poll_is_not_slow_for_waiting() -> None:
    assert RequestFigures().note(request(ApiKey.FETCH), 37 * MS) == 7 * MS


def test_a_request_is_not_slow_for_those_before_it() -> None:
    times = request()
    times.turn = 50 * MS
    assert RequestFigures().note(times, 54 * MS) == 37 * MS


def test_errors_are_counted_by_api_and_code() -> None:
    figures = RequestFigures()
    times = request()
    times.codes = [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]
    figures.note(times, 40 * MS)
    figures.note(request(ApiKey.METADATA), 40 * MS)
    errors = figures.labelled_statistics()["errors_total"]
    assert errors == {("Produce", "KAFKA_STORAGE_ERROR"): 2}
    assert spread(figures, "nanoseconds", "Metadata").count == 1
