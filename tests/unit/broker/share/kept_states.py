"""Share coordinators and settings of groups for tests: a dictionary, answers on demand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.share_state import (
    NO_START_OFFSET,
    SharePartitionKey,
    SharePartitionState,
    ShareStateBatch,
    ShareStateWrite,
)
from kraftrio.wire.errors import ErrorCode, KafkaError


class KeptStates:
    """The states of share partitions, written at once, or when the test says so.

    Attributes:
        error: every answer until it is NONE again.
        is_slow: answers come by `answer`.
        writes: all of them, in order.
    """

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, SharePartitionState] = {}
        self.error = ErrorCode.NONE
        self.is_slow = False
        self.writes: list[ShareStateWrite] = []
        self.read_count = 0
        self._late: list[tuple[Deferred[ErrorCode], SharePartitionKey, ShareStateWrite]] = []
        self._late_reads: list[tuple[Deferred[SharePartitionState | KafkaError], SharePartitionKey]]
        self._late_reads = []

    def read(
        self, key: SharePartitionKey, leader_epoch: int
    ) -> Deferred[SharePartitionState | KafkaError]:
        self.read_count += 1
        answer: Deferred[SharePartitionState | KafkaError] = Deferred()
        if self.is_slow:
            self._late_reads.append((answer, key))
        else:
            answer.complete(self._read(key))
        return answer

    def _read(self, key: SharePartitionKey) -> SharePartitionState | KafkaError:
        if self.error is not ErrorCode.NONE:
            return KafkaError(self.error)
        return self.states.setdefault(key, SharePartitionState(1, 0, NO_START_OFFSET))

    def write(self, key: SharePartitionKey, write: ShareStateWrite) -> Deferred[ErrorCode]:
        self.writes.append(write)
        answer: Deferred[ErrorCode] = Deferred()
        if self.is_slow:
            self._late.append((answer, key, write))
        else:
            answer.complete(self._write(key, write))
        return answer

    def _write(self, key: SharePartitionKey, write: ShareStateWrite) -> ErrorCode:
        if self.error is ErrorCode.NONE:
            state = self.states[key]
            offsets = {
                at: batch[2:]
                for kept in (state.batches, write.batches)
                for batch in kept
                for at in range(batch[0], batch[1] + 1)
                if at >= write.start_offset
            }
            batches: list[ShareStateBatch] = []
            for at in sorted(offsets):
                if batches and batches[-1][1:] == (at - 1, *offsets[at]):
                    batches[-1] = batches[-1]._replace(last_offset=at)
                else:
                    batches.append(ShareStateBatch(at, at, *offsets[at]))
            self.states[key] = replace(
                state, start_offset=write.start_offset, batches=tuple(batches)
            )
        return self.error

    def answer(self) -> None:
        """Give the answers that are late."""
        late, self._late = self._late, []
        for answer, key, write in late:
            answer.complete(self._write(key, write))
        late_reads, self._late_reads = self._late_reads, []
        for read, key in late_reads:
            read.complete(self._read(key))
        run_waiting()


@dataclass
class Settings:
    """What groups have set, of all groups alike."""

    values: dict[str, int | bool | str] = field(
        default_factory=lambda: {
            "share.delivery.count.limit": 5,
            "share.partition.max.record.locks": 200,
            "share.record.lock.duration.ms": 15_000,
            "share.renew.acknowledge.enable": True,
            "share.isolation.level": "read_uncommitted",
            "share.auto.offset.reset": "earliest",
        }
    )

    def number(self, group_id: str, name: str) -> int:
        return int(self.values[name])

    def flag(self, group_id: str, name: str) -> bool:
        return bool(self.values[name])

    def text(self, group_id: str, name: str) -> str:
        return str(self.values[name])
