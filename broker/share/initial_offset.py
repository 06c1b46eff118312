"""Where a share group begins in a partition that it has never read: share.auto.offset.reset.

`latest` is the high watermark, `earliest` the start of the log; `by_duration:P...` the first record
that is not older than that (KIP-1106's form). Where there is none, that is the next one to come, at
the high watermark (Apache Kafka refuses to fetch until it has come).

Called by `LedSharePartition`, when it is loaded.
"""

from __future__ import annotations

import re
from typing import Final

from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.replica_reads import ReplicaReads

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?", re.IGNORECASE
)


def duration_ms(reset: str) -> int:
    """The milliseconds of `by_duration:PnDTnHnMn.nS`, which the controller has checked.

    Raises:
        ValueError: it is nothing of the kind.
    """
    found = _DURATION.fullmatch(reset)
    if found is None:
        raise ValueError(f"{reset} is not a setting of share.auto.offset.reset")
    days, hours, minutes, seconds, fraction = found.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    return (whole + int(seconds or 0)) * 1000 + int(f"{fraction or 0:0<3}"[:3])


def initial_offset(partition: Partition, reset: str, reads: ReplicaReads, now_ms: int) -> int:
    """The offset to begin with.

    Args:
        now_ms: on the wall clock.

    Raises:
        KafkaError: the disk fails.
    """
    high_watermark = partition.state.high_watermark
    if reset == LATEST:
        return high_watermark
    if reset == EARLIEST:
        return partition.log.log_start_offset
    found = reads.offset_for_timestamp(partition, max(0, now_ms - duration_ms(reset)))
    return high_watermark if found is None else min(found.offset, high_watermark)
