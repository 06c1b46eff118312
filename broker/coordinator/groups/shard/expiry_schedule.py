"""When expired offsets are removed: a run every `offsets.retention.check.interval.ms`, by slices.

A slice's tombstones are an outcome; the next slice follows once they are committed. A run whose
slice cannot be stored is given up until the next one is due.

Called by: `group_shard`.
"""

from __future__ import annotations

from typing import Final

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.groups.shard.offset_expiry import ExpirySliceStored, OffsetExpiry
from kraftrio.broker.coordinator.outcome import Now, Outcome
from kraftrio.wire.errors import ErrorCode

EXPIRY_DEADLINE: Final[DeadlineKey] = ("expiry",)
_NEXT_SLICE_MS = 1


class ExpirySchedule:
    """See the module."""

    __slots__ = ("_deadlines", "_expiry", "_properties")

    def __init__(
        self, expiry: OffsetExpiry, deadlines: DeadlineQueue, properties: GroupProperties
    ) -> None:
        self._expiry = expiry
        self._deadlines = deadlines
        self._properties = properties

    def start(self, now: Now) -> None:
        """The shard is loaded: the first run is due after the interval."""
        self._schedule(now, soon=False)

    def on_deadline(self, now: Now) -> Outcome:
        """Remove some of what has expired; the rest follows once that is committed."""
        if self._expiry.is_done:
            self._expiry.begin()
        records = self._expiry.next_records(now)
        self._schedule(now, soon=not records and not self._expiry.is_done)
        return Outcome(records=records, replay=True, follow_up=ExpirySliceStored())

    def on_slice_stored(self, error: ErrorCode, now: Now) -> None:
        """The tombstones of a slice are committed, or cannot be."""
        if error is not ErrorCode.NONE:
            self._expiry.end()
        elif not self._expiry.is_done:
            self._schedule(now, soon=True)

    def _schedule(self, now: Now, *, soon: bool) -> None:
        interval_ms = self._properties.offsets_retention_check_interval_ms
        delay_ms = _NEXT_SLICE_MS if soon else interval_ms
        self._deadlines.schedule(EXPIRY_DEADLINE, now.monotonic_ms + delay_ms)
