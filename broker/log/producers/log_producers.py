"""The producers of one log: their state in memory and its snapshots on disk, kept in step.

`partition_log` owns one; `recovery` makes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftrio.broker.log.producers.producer_state import ProducerStateManager
from kraftrio.broker.log.producers.replay import rebuild_producer_state
from kraftrio.broker.log.producers.snapshots import ProducerSnapshots
from kraftrio.broker.log.segment.segment import Segment


class LogProducers:
    """See the module."""

    __slots__ = ("snapshots", "state")

    def __init__(self, state: ProducerStateManager, snapshots: ProducerSnapshots) -> None:
        self.state = state
        self.snapshots = snapshots

    def restore(
        self,
        segments: Sequence[Segment],
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        *,
        high_watermark: int | None,
    ) -> None:
        """Make the state what it was before `end_offset`, from a snapshot and the batches.

        Transactions whose markers are not below the high watermark hold back what is stable still,
        if it is known.
        """
        rebuild_producer_state(
            self.state,
            self.snapshots,
            segments,
            log_start_offset,
            end_offset,
            now_ms,
            high_watermark=high_watermark,
        )

    def forget(self, end_offset: int) -> None:
        """Forget all of them: nothing of what they wrote is in the log, which ends there."""
        self.snapshots.remove(self.snapshots.offsets)
        self.state.clear(end_offset)

    def write_snapshot(self, offset: int, *, sync: bool = False) -> None:
        """Save the state as it is before `offset`."""
        self.snapshots.write(self.state, offset, sync=sync)
