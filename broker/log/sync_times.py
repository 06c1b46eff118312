"""How long the disks take to make files durable: every sync of the process is counted here.

Owns: `SYNC_TIMES`, one for the process, and the recent slow syncs, so that it can be said who
waited for one (`during`). Any thread may add.

Called by: `files`. Read by `metrics`, and by who explains slow requests.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

from kraftrio.base.histogram import Histogram
from kraftrio.base.statistics import LabelledStatistics

_BOUNDS = tuple(range(16, 37))  # 66 us to 69 s
_SLOW_NS = 10_000_000
_REMEMBERED = 64


class SlowSync(NamedTuple):
    """A sync that took long; times are ticks."""

    path: str
    began: int
    ended: int


class SyncTimes:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._histogram = Histogram()
        self._slow: deque[SlowSync] = deque(maxlen=_REMEMBERED)

    def add(self, path: str, began: int, ended: int) -> None:
        """A file was synced."""
        with self._lock:
            self._histogram.add(ended - began)
            if ended - began >= _SLOW_NS:
                self._slow.append(SlowSync(path, began, ended))

    def during(self, began: int, ended: int) -> list[SlowSync]:
        """The slow syncs that fall into a time."""
        with self._lock:
            return [one for one in self._slow if one.began < ended and one.ended > began]

    def labelled_statistics(self) -> LabelledStatistics:
        """The times of all syncs."""
        with self._lock:
            return {"sync_nanoseconds": {(): self._histogram.snapshot(_BOUNDS)}}


SYNC_TIMES: Final = SyncTimes()
