"""Topics beside the one that stays as it is: one loses its beginning, one keeps newest values only.

Owns: `TopicUses`, their clients, and what must be there of them in the end
1. What was deleted by an administrator (DeleteRecords) or grown too old or large (retention) is
   gone from the beginning only; the rest is as of any other topic.
2. A compacted log keeps the newest value of each key on every replica; a tombstone that is the
   newest leaves nothing older behind.

Called by: `simulation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraftrio.wire.primitives import TopicPartition
from tests.sim.client import SimClient, Unavailable
from tests.sim.history import History, Sender
from tests.sim.offsets_watcher import EARLIEST, OffsetsWatcher
from tests.sim.producers import PartitionProducer, ProducerOptions, Reader

TRIMMED, TABLE = "trimmed", "table"
CONFIGS = {
    TRIMMED: {"retention.bytes": "30000", "segment.bytes": "1048576"},
    TABLE: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
}
_KEYS = 4
_TOMBSTONE_EVERY = 7
_TIMEOUT_MS = 5_000
_DELETED = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})


def table_record(name: str, number: int) -> tuple[bytes, bytes | None]:
    """Key and value of record `number` of a table's producer."""
    key = f"{name}#{number % _KEYS}".encode()
    is_tombstone = number % _TOMBSTONE_EVERY == _TOMBSTONE_EVERY - 1
    return key, None if is_tombstone else f"{name}/{number}".encode()


class TopicUses:
    """See the module.

    Args:
        topics: which of `TRIMMED` and `TABLE` are used.
        client: makes a client.
        start: runs something as a part of the simulation.
    """

    def __init__(
        self,
        history: History,
        topics: Sequence[str],
        client: Callable[[str], SimClient],
        start: Callable[[Callable[[], Any]], None],
    ) -> None:
        self._history = history
        self._client = client
        self._start = start
        self.topics = list(topics)
        self.topic_partitions = [TopicPartition(topic, 0) for topic in topics]
        self.producers: list[PartitionProducer] = []
        self._watcher: OffsetsWatcher | None = None

    def begin(self, watcher: OffsetsWatcher) -> None:
        """Start the clients."""
        self._watcher = watcher
        for number, tp in enumerate(self.topic_partitions):
            client = self._client(f"u{number}")
            options = ProducerOptions(
                interval_s=client.rng.choice((0.1, 0.3)), padding=client.rng.choice((30, 600))
            )
            maker = table_record if tp.topic == TABLE else None
            producer = PartitionProducer(client, self._history, tp, options, maker)
            self.producers.append(producer)
            self._start(producer.run)
            if tp.topic == TRIMMED:
                deleter = _Deleter(self._client("deleter"), tp, watcher)
                self._start(deleter.run)
                reader = Reader(self._client("ur"), self._history, tp, deleter.find_beginning)
                self._start(reader.run)

    # -- the end --------------------------------------------------------------------------------

    def check_beginning(self, tp: TopicPartition, log_start_offset: int) -> None:
        """What was acknowledged to be deleted is."""
        assert self._watcher is not None
        deleted = self._watcher.known_deleted(tp)
        if log_start_offset < deleted:
            raise SimulationFailure(
                f"{tp.topic}-{tp.partition} was deleted before {deleted}, and begins at"
                f" {log_start_offset} in the end"
            )

    def check_table(
        self, tp: TopicPartition, where: str, records: Sequence[tuple[bytes, bytes | None]]
    ) -> None:
        """Check one replica of a compacted log: (key, value) of all that it holds, in order."""
        newest: dict[bytes, bytes | None] = {}
        numbers: dict[bytes, int] = {}
        for key, value in records:
            newest[key] = value
            if value is None:
                continue
            number = int(value.rpartition(b"/")[2])
            if number < numbers.get(key, -1):
                raise SimulationFailure(f"{where} has {value.decode()} after {numbers[key]}")
            numbers[key] = number
        for sender in self._history.senders.values():
            if sender.topic_partition == tp:
                for key_number in range(_KEYS):
                    self._check_key(sender, key_number, newest, where)

    def _check_key(
        self, sender: Sender, key_number: int, newest: dict[bytes, bytes | None], where: str
    ) -> None:
        sent = range(key_number, sender.sent, _KEYS)
        acknowledged = [number for number in sent if number in sender.acknowledged]
        if not acknowledged:
            return
        least = acknowledged[-1]  # it, or what was sent later
        key, _ = table_record(sender.name, key_number)
        value = newest.get(key)
        if value is not None:
            is_right = int(value.rpartition(b"/")[2]) >= least
        else:  # gone, or a tombstone
            later = range(least, sender.sent, _KEYS)
            is_right = any(table_record(sender.name, number)[1] is None for number in later)
        if not is_right:
            raise SimulationFailure(
                f"{where}: the newest of {key.decode()} is {value!r}, but {least} was acknowledged"
            )


class _Deleter:
    """Deletes records from the beginning of a partition now and then."""

    def __init__(self, client: SimClient, tp: TopicPartition, watcher: OffsetsWatcher) -> None:
        self._client = client
        self._tp = tp
        self._watcher = watcher

    async def find_beginning(self) -> int:
        """Tell where the partition begins.

        Raises:
            Unavailable: nobody knows now.
        """
        answer, _ = await self._watcher.ask(self._tp, EARLIEST)
        return int(answer.offset)

    async def run(self) -> None:
        """Delete until cancelled."""
        rng = self._client.rng
        while True:
            await trio.sleep(rng.expovariate(1 / 2.0))
            try:
                await self._delete(await self._choose())
            except Unavailable as error:
                self._client.note(f"delete records: {error}")
                self._client.forget(self._tp.topic)

    async def _choose(self) -> int:
        """An offset to delete before; -1 for all that is committed."""
        rng = self._client.rng
        if rng.random() < 0.1:
            return -1
        beginning = await self.find_beginning()
        return beginning + rng.randrange(40)

    async def _delete(self, offset: int) -> None:
        tp = self._tp
        partition = DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        topic = DeleteRecordsTopic(name=tp.topic, partitions=[partition])
        leader, _ = await self._client.leader(*tp)
        response = await self._client.call_node(
            leader,
            DeleteRecordsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS),
            extra_s=_TIMEOUT_MS / 1000,
        )
        answer = response.topics[0].partitions[0]
        code = ErrorCode(answer.error_code)
        if code not in _DELETED:
            if not code.retriable:
                raise SimulationFailure(f"delete records was answered {code.name}")
            raise Unavailable(code.name)
        if code is ErrorCode.NONE:
            if answer.low_watermark < offset:
                raise SimulationFailure(
                    f"records before {offset} were to go, but {answer.low_watermark} is first"
                )
            deleted = self._watcher.deleted
            deleted[tp] = max(deleted.get(tp, 0), answer.low_watermark)
            self._client.note(f"deleted before {answer.low_watermark}")
