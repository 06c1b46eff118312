"""What requests cost, by API: how many came, what became of them, and where their time went.

Owns `RequestFigures`, one per node, and `RequestTimes`, which goes with each request from the
moment that its bytes are here until the socket has taken its answer. A request's time has Kafka's
parts:
- queue: from the arrival of its bytes until its handler is called;
- local: in its handler, up to the moment that it answers or waits;
- remote: while it waits, for replicas, for records, for others, or for its next slice of work;
- send: from the answer until the socket has taken it, behind those before it.

Rules
1. Times are ticks in nanoseconds of one clock, which never goes back.
2. A request is counted when its answer has left, or at once where there is none (acks=0); those
   whose connection ends first are not counted.
3. What waits says why (`wait_for`): it is asked only of requests that have waited for long.

Called by `client_connection` and `response_queue`. Read by `metrics` and by who reports slow ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from kraftrio.base.histogram import Histogram, Spread
from kraftrio.base.statistics import LabelledStatistics
from kraftrio.broker.server.context import ClientInfo
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.protocol.framing import RequestStart

_TIME_BOUNDS = tuple(range(16, 37))  # 2**16 ns, 66 us, to 2**36 ns, 69 s
_STAGE_BOUNDS = tuple(range(16, 37, 2))
_SIZE_BOUNDS = tuple(range(6, 31, 2))  # 64 B to 1 GiB

# They ask to wait for what may come: records, or the other members of a group.
_LONG_POLLS = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})

STAGES = ("queue", "local", "remote", "send")


class RequestTimes:
    """One request on its way.

    Attributes:
        began: when its handler was called.
        handled: when that returned.
        completed: when there was an answer.
        turn: when all before it on its connection had been answered; 0: they had been by then.
        end_position: how much its connection has sent when its answer has left.
        codes: of the errors in its response.
        explain: says what it waits for; None: for nothing.
        why: what it was found to wait for, when it had waited for long.
    """

    # Most requests keep these: they are set on those that have something else to say.
    completed = 0
    turn = 0
    handled = 0
    end_position = 0
    response_bytes = 0
    codes: Sequence[int] = ()
    explain: Callable[[], str] | None = None
    why = ""

    def __init__(
        self, start: RequestStart, client: ClientInfo, received: int, began: int, size: int
    ) -> None:
        self.start = start
        self.client = client
        self.received = received
        self.began = began
        self.request_bytes = size

    @property
    def asked_wait(self) -> bool:
        """Whether it waits because it asked to (a long poll), which does not count as slow."""
        return self.start.api_key in _LONG_POLLS

    def wait_for(self, explain: Callable[[], str]) -> None:
        """The request is going to wait.

        Args:
            explain: says for what, while it waits.
        """
        self.explain = explain


class SlowRequestLimit:
    """Above what time a request is slow, and where those that are get reported.

    Attributes:
        nanoseconds: the limit.
        report: called with each request, and when its answer had left.
    """

    __slots__ = ("nanoseconds", "report")

    def __init__(self) -> None:
        self.nanoseconds: float = math.inf
        self.report: Callable[[RequestTimes, int], None] = _ignore_slow_request


def _ignore_slow_request(_times: RequestTimes, _sent: int) -> None:
    """Slow requests are not logged before `report` is set."""


class ApiFigures:
    """The figures of one API; sizes in bytes, times in nanoseconds."""

    __slots__ = (
        "errors",
        "local",
        "queue",
        "remote",
        "request_bytes",
        "response_bytes",
        "send",
        "total",
    )

    def __init__(self) -> None:
        self.total = Histogram()
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()  # of those that have waited
        self.send = Histogram()
        self.request_bytes = Histogram()
        self.response_bytes = Histogram()
        self.errors: Counter[int] = Counter()

    def seconds(self) -> tuple[Spread, dict[str, Spread]]:
        """The times of all requests, whole and by stage, in nanoseconds."""
        parts = {name: getattr(self, name).snapshot(_STAGE_BOUNDS) for name in STAGES}
        whole = self.total.snapshot(_TIME_BOUNDS)
        never = whole.count - parts["remote"].count
        below = tuple(count + never for count in parts["remote"].below)
        parts["remote"] = replace(parts["remote"], count=whole.count, below=below)
        return replace(whole, total=sum(part.total for part in parts.values())), parts


class RequestFigures:
    """See the module.

    Attributes:
        parked: the requests that wait, those that came first being first.
    """

    def __init__(self) -> None:
        self.by_api: dict[int, ApiFigures] = {}
        self.parked: dict[RequestTimes, None] = {}

    def note(self, times: RequestTimes, sent: int) -> int:
        """Count a request whose answer has left.

        Returns:
            what it took, but for what it asked to wait, and what it waited for those before it.
        """
        api_key = times.start.api_key
        figures = self.by_api.get(api_key)
        if figures is None:
            figures = self.by_api[api_key] = ApiFigures()
        began, handled, completed = times.began, times.handled, times.completed
        # Written out, since this is done for every request. Their sums are those of their stages.
        taken = sent - times.received
        figures.total.counts[taken.bit_length()] += 1
        value = began - times.received
        queue = figures.queue
        queue.counts[value.bit_length()] += 1
        queue.total += value
        value = handled - began
        local = figures.local
        local.counts[value.bit_length()] += 1
        local.total += value
        value = sent - completed
        send = figures.send
        send.counts[value.bit_length()] += 1
        send.total += value
        value = times.request_bytes
        sizes = figures.request_bytes
        sizes.counts[value.bit_length()] += 1
        sizes.total += value
        value = times.response_bytes
        sizes = figures.response_bytes
        sizes.counts[value.bit_length()] += 1
        sizes.total += value
        for code in times.codes:
            figures.errors[code] += 1
        waited = completed - handled
        if waited:  # the others are known by their absence
            figures.remote.add(waited)
            if times.asked_wait:
                taken -= waited
        if times.turn:
            taken -= times.turn - completed
        return taken

    def labelled_statistics(self) -> LabelledStatistics:
        """Requests, errors, sizes and times of each API that was asked for."""
        errors: dict[tuple[str, ...], float] = {}
        seconds: dict[tuple[str, ...], float | Spread] = {}
        by_stage: dict[tuple[str, ...], float | Spread] = {}
        request_bytes: dict[tuple[str, ...], float | Spread] = {}
        response_bytes: dict[tuple[str, ...], float | Spread] = {}
        for api_key, figures in self.by_api.items():
            api = APIS[ApiKey(api_key)].name
            seconds[(api,)], parts = figures.seconds()
            by_stage.update({(api, stage): part for stage, part in parts.items()})
            request_bytes[(api,)] = figures.request_bytes.snapshot(_SIZE_BOUNDS)
            response_bytes[(api,)] = figures.response_bytes.snapshot(_SIZE_BOUNDS)
            for code, count in figures.errors.items():
                errors[api, ErrorCode(code).name] = count
        return {
            "errors_total": errors,
            "nanoseconds": seconds,
            "stage_nanoseconds": by_stage,
            "request_bytes": request_bytes,
            "response_bytes": response_bytes,
        }
