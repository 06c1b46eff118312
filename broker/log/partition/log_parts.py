"""Values that a log is opened with and put together from."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.leader_epoch_cache import LeaderEpochCache
from kraftrio.broker.log.partition.segment_list import SegmentList
from kraftrio.broker.log.partition.tail_cache import TailBudget
from kraftrio.broker.log.producers.log_producers import LogProducers
from kraftrio.broker.log.producers.producer_state import DEFAULT_PRODUCER_ID_EXPIRATION_MS


@dataclass(slots=True)
class LogResources:
    """What all logs of a process share."""

    fs: FileSystem
    tail_budget: TailBudget = field(default_factory=TailBudget)
    producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS  # of logs opened from now on


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointedOffsets:
    """What the checkpoint files of a log directory say of one log.

    Attributes:
        recovery_point: what is before it is durable; None: the files do not name the log, so this
            broker may not have written what is in it.
        first_dirty_offset: compaction has looked at everything before it.
    """

    log_start_offset: int = 0
    recovery_point: int | None = None
    high_watermark: int = 0
    first_dirty_offset: int = 0


@dataclass(slots=True, kw_only=True)
class LogParts:
    """The parts of one opened log; they fit each other."""

    topic_id: bytes | None
    segments: SegmentList
    leader_epochs: LeaderEpochCache
    producers: LogProducers
    log_start_offset: int
    recovery_point: int
