"""A consumer's part for offsets that brokers know: where logs begin and end, what is committed.

Owns `PartitionOffsets`, which programs reach as `Consumer.offsets`. It changes nothing of what the
consumer reads, and its partitions need not be assigned. Every call has `timeout_ms`, which is
default_api_timeout_ms unless given.

Called by: `consumer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.base.clock import wall_ms
from kraftrio.clients.arguments.several import (
    Partitions,
    by_item,
    topic_partition,
    topic_partitions,
)
from kraftrio.clients.arguments.times import Duration, PastMoment, past_moment_ms
from kraftrio.clients.calls import Calls
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetAndTimestamp,
    OffsetClient,
)
from kraftrio.clients.group_offsets import OffsetAndMetadata
from kraftrio.wire.primitives import TopicPartition


class PartitionOffsets:
    """Looks up offsets of partitions.

    Args:
        calls: of the consumer, which may not be open.

    Attributes:
        client: who asks brokers; set when the consumer is entered.
    """

    client: OffsetClient

    def __init__(self, config: ConsumerConfig, calls: Calls) -> None:
        self._config = config
        self._calls = calls

    async def beginning(
        self, partitions: Partitions, *, timeout_ms: Duration | None = None
    ) -> dict[TopicPartition, int]:
        """Return where the partitions' logs begin.

        Raises:
            TimedOutError, KafkaClientError: it could not be found out.
        """
        return await self._found(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    async def end(
        self, partitions: Partitions, *, timeout_ms: Duration | None = None
    ) -> dict[TopicPartition, int]:
        """Return where the partitions' logs end: the high watermark, or for read_committed the
        last stable offset.

        Raises:
            TimedOutError, KafkaClientError: it could not be found out.
        """
        return await self._found(partitions, LATEST_TIMESTAMP, timeout_ms)

    async def _found(
        self, partitions: Partitions, timestamp: int, timeout_ms: Duration | None
    ) -> dict[TopicPartition, int]:
        self._calls.check_open()
        wanted = dict.fromkeys(topic_partitions("partitions", partitions), timestamp)
        found = await self.client.look_up(wanted, self._config.call_timeout_s(timeout_ms))
        return {each: reported.offset for each, reported in found.items() if reported is not None}

    async def for_times(
        self,
        timestamps_ms: Mapping[TopicPartition, PastMoment],
        *,
        timeout_ms: Duration | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset of each partition that is not older; None where all are.

        Raises:
            TypeError, ValueError: that is no time (see `Consumer.seek_to_time`), or no partition.
            TimedOutError, KafkaClientError: it could not be found out.
        """
        self._calls.check_open()
        now_ms = wall_ms()
        wanted = {
            topic_partition(each): past_moment_ms("a timestamp", moment, now_ms)
            for each, moment in by_item("timestamps_ms", timestamps_ms).items()
        }
        return await self.client.look_up(wanted, self._config.call_timeout_s(timeout_ms))

    async def committed(
        self, partitions: Partitions, *, timeout_ms: Duration | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed of the partitions; None where nothing is.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
            TimedOutError, KafkaClientError: it could not be found out.
        """
        self._calls.check_open()
        wanted = topic_partitions("partitions", partitions)
        return await self.client.repeat(
            lambda: self.client.committed(wanted), self._config.call_timeout_s(timeout_ms)
        )
