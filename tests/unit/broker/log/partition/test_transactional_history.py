"""Random histories of transactions: a leader's log and a follower's say what a naive list says.

Steps append, in transactions and outside of them, end transactions (with an epoch of their own or
a higher one), move the high watermark, delete records, roll, apply retention, restart, kill, cut
what is not committed, and let the other replica lead. After each of them both logs are compared
with the list: last stable offset, aborted transactions, producers, and what a reader of committed
records gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest

from kraftrio.broker.log.partition.partition_log import AppendOrigin, PartitionLog
from kraftrio.wire.records.batch import iter_headers, iter_records
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.support.logs import LogContext, batch

PRODUCERS = (1, 2, 3, 4)
VERSION_2 = (3, 4)  # whose markers have an epoch above the transaction's


@dataclass(frozen=True)
class Entry:
    """A batch as it was appended; `commit` is None but for markers."""

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    last_sequence: int
    is_transactional: bool
    commit: bool | None = None


@dataclass
class Seen:
    """A producer after some entries."""

    epoch: int = -1
    last_sequence: int = -1
    first_offset: int | None = None


class Model:
    """What was appended, and what follows from it, computed again each time."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def end_offset(self) -> int:
        return self.entries[-1].last_offset + 1 if self.entries else 0

    def producers(self) -> dict[int, Seen]:
        return self._walk()[0]

    def ended(self) -> list[tuple[int, int, Entry]]:
        """(producer, first offset, marker) of each transaction that ended."""
        return self._walk()[1]

    def _walk(self) -> tuple[dict[int, Seen], list[tuple[int, int, Entry]]]:
        seen: dict[int, Seen] = {}
        ended = []
        for entry in self.entries:
            if entry.producer_id < 0:
                continue
            producer = seen.setdefault(entry.producer_id, Seen())
            if entry.commit is not None:
                if producer.first_offset is not None:
                    ended.append((entry.producer_id, producer.first_offset, entry))
                if entry.epoch != producer.epoch:
                    producer.last_sequence = -1
                producer.first_offset = None
            else:
                producer.last_sequence = entry.last_sequence
                if entry.is_transactional and producer.first_offset is None:
                    producer.first_offset = entry.base_offset
            producer.epoch = entry.epoch
        return seen, ended

    def last_stable_offset(self, high_watermark: int, decided_before: int) -> int:
        """Decided transactions hold it back, too, until their marker is committed.

        Args:
            decided_before: but not those with markers before this, of which nothing is known.
        """
        unstable = [one.first_offset for one in self.producers().values()]
        unstable += [
            first
            for _, first, marker in self.ended()
            if marker.last_offset >= max(high_watermark, decided_before)
        ]
        return min([high_watermark, *(one for one in unstable if one is not None)])

    def aborted(self) -> set[tuple[int, int, int]]:
        return {
            (producer_id, first, marker.last_offset)
            for producer_id, first, marker in self.ended()
            if not marker.commit
        }

    def committed_offsets(self, start: int, end: int) -> list[int]:
        """The offsets of the records that a reader of committed ones gets."""
        aborted = self.aborted()
        return [
            offset
            for entry in self.entries
            if entry.commit is None
            for offset in range(entry.base_offset, entry.last_offset + 1)
            if start <= offset < end
            and not any(
                entry.is_transactional
                and entry.producer_id == producer_id
                and first <= offset < last
                for producer_id, first, last in aborted
            )
        ]


class History:
    """Two replicas of a log under random work; `replicas[0]` leads."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        size = self.random.choice((400, 1000, 100_000))
        self.replicas = [
            LogContext(segment_bytes=size, index_interval_bytes=60, retention_bytes=5 * size)
            for _ in range(2)
        ]
        self.model = Model()
        # A snapshot does not say, in Kafka's format, which markers were not committed then; so
        # nobody knows it of a log that was opened without a high watermark.
        self.opened_at = {id(one): 0 for one in self.replicas}
        self.next_sequence = dict.fromkeys(PRODUCERS, 0)
        self.epochs = dict.fromkeys(PRODUCERS, 0)

    @property
    def leader(self) -> LogContext:
        return self.replicas[0]

    @property
    def committed_offset(self) -> int:
        return min(one.log.log_end_offset for one in self.replicas)

    # -- appends --

    def append(self) -> None:
        open_producers = self._open()
        producer_id = self.random.choice((-1, *PRODUCERS, *PRODUCERS))
        transactional = producer_id in open_producers or self.random.random() < 0.8
        count = self.random.choice((1, 1, 3))
        sequence = self.next_sequence.get(producer_id, -1)
        epoch = self.epochs.get(producer_id, -1)
        is_transactional = transactional and producer_id >= 0
        data = batch(
            *(b"%d" % index for index in range(count)),
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=sequence,
            transactional=is_transactional,
        )
        info = self.leader.append_bytes(data)
        last_sequence = sequence + count - 1 if producer_id >= 0 else -1
        self.model.entries.append(
            Entry(info.base_offset, info.last_offset, producer_id, epoch, last_sequence,
                  is_transactional)
        )  # fmt: skip
        if producer_id >= 0:
            self.next_sequence[producer_id] += count

    def end_transaction(self) -> None:
        """Mostly of one that is open; a marker without records is as good."""
        open_producers = self._open()
        if not open_producers or self.random.random() < 0.1:
            producer_id = self.random.choice(PRODUCERS)
        else:
            producer_id = self.random.choice(open_producers)
        if producer_id in VERSION_2:
            self.epochs[producer_id] += 1
            self.next_sequence[producer_id] = 0
        commit = self.random.random() < 0.5
        marker = build_end_transaction_batch(
            producer_id,
            self.epochs[producer_id],
            EndTransactionMarker(commit, 0),
            timestamp=self.leader.now_ms,
        )
        info = self.leader.log.append_as_leader(
            marker,
            self.leader.leader_epoch,
            self.leader.now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=2 if producer_id in VERSION_2 else 0,
        )
        self.model.entries.append(
            Entry(info.base_offset, info.base_offset, producer_id, self.epochs[producer_id], -1,
                  True, commit)
        )  # fmt: skip

    def _open(self) -> list[int]:
        return [
            producer_id
            for producer_id, seen in self.model.producers().items()
            if seen.first_offset is not None
        ]

    # -- replication --

    def replicate(self) -> None:
        """The follower fetches once or to the end; both learn what is committed."""
        leader, follower = (one.log for one in self.replicas)
        while follower.log_end_offset < leader.log_end_offset:
            read = leader.read(follower.log_end_offset, 200, max_offset=1 << 60, min_one_batch=True)
            follower.append_as_follower(bytearray(read.records), self.leader.now_ms)
            if self.random.random() < 0.3:
                break
        self._commit()

    def _commit(self) -> None:
        for one in self.replicas:
            high_watermark = max(one.log.high_watermark, self.committed_offset)
            one.log.update_high_watermark(min(high_watermark, one.log.log_end_offset))

    def fail_over(self) -> None:
        """The follower leads; the old leader cuts what was never committed."""
        self.replicas.reverse()
        end = self.leader.log.log_end_offset
        self.model.entries = [one for one in self.model.entries if one.base_offset < end]
        self.replicas[1].log.truncate_to(end)
        for one in self.replicas:
            one.leader_epoch += 1
        for producer_id in PRODUCERS:
            seen = self.model.producers().get(producer_id, Seen())
            self.epochs[producer_id] = max(seen.epoch, 0)
            self.next_sequence[producer_id] = seen.last_sequence + 1
        self._commit()

    # -- what happens to a replica --

    def restart(self) -> None:
        one = self.random.choice(self.replicas)
        one.high_watermark = one.log.high_watermark
        one.restart()
        self._opened(one)

    def kill(self) -> None:
        one = self.random.choice(self.replicas)
        if self.random.random() < 0.5:
            one.log.flush()
        one.recovery_point = one.log.recovery_point
        one.log_start_offset = one.log.log_start_offset
        one.high_watermark = self.random.choice((0, one.log.high_watermark))
        one.kill()
        self._opened(one)

    def _opened(self, one: LogContext) -> None:
        self.opened_at[id(one)] = 0 if one.high_watermark else one.log.log_end_offset
        one.log.update_high_watermark(max(self.committed_offset, one.log.log_start_offset))

    def roll(self) -> None:
        one = self.random.choice(self.replicas)
        if one.log.log_end_offset > one.log.active_segment.base_offset:
            one.log.roll(one.now_ms)

    def delete_records(self) -> None:
        """Not beyond what is stable: what is open then begins where the records do."""
        for one in self.replicas:
            stable = one.log.last_stable_offset
            one.log.delete_records_before(self.random.randint(min(stable, 3), stable))

    # -- comparison --

    def check(self) -> None:
        assert self.leader.log.log_end_offset == self.model.end_offset
        for one in self.replicas:
            self._check(one.log, self.opened_at[id(one)])

    def _check(self, log: PartitionLog, opened_at: int) -> None:
        model = Model()
        model.entries = [e for e in self.model.entries if e.base_offset < log.log_end_offset]
        stable = log.last_stable_offset
        assert 0 <= log.log_start_offset <= stable <= log.high_watermark <= log.log_end_offset
        least = model.last_stable_offset(log.high_watermark, 0)
        most = model.last_stable_offset(log.high_watermark, opened_at)
        assert max(least, log.log_start_offset) <= stable <= max(most, log.log_start_offset)
        if log.high_watermark >= opened_at:
            assert least == most
        start, end = log.log_start_offset, log.log_end_offset
        listed = {
            (one.producer_id, one.first_offset, one.last_offset)
            for one in log.aborted_transactions(start, end)
        }
        aborted = model.aborted()
        assert listed <= aborted
        assert {one for one in aborted if one[2] >= start} <= listed
        producers = {
            one.producer_id: Seen(
                one.producer_epoch, one.last_sequence, one.current_txn_first_offset
            )
            for one in log.producer_state.active_producers()
        }
        wanted = model.producers()
        for producer_id, seen in producers.items():
            known = wanted[producer_id]
            if seen.last_sequence == -1:  # only a marker is left of it after a crash
                known = replace(known, last_sequence=-1)
            assert seen == known, producer_id
        assert {one for one, seen in wanted.items() if seen.first_offset is not None} <= set(
            producers
        )
        assert list(self._read_committed(log)) == model.committed_offsets(start, stable)

    def _read_committed(self, log: PartitionLog) -> Iterator[int]:
        """Read as a consumer does: batches up to the stable offset, and what was aborted."""
        offset = log.log_start_offset
        while offset < log.last_stable_offset:
            read = log.read(offset, 300, max_offset=log.last_stable_offset, min_one_batch=True)
            coming = log.aborted_transactions(offset, read.next_offset)
            aborting: set[int] = set()
            for header in iter_headers(read.records):
                begun = [one for one in coming if one.first_offset <= header.last_offset]
                aborting |= {
                    one.producer_id for one in begun if one.last_offset >= header.base_offset
                }
                if header.is_control:
                    aborting.discard(header.producer_id)
                    coming = [
                        one
                        for one in coming
                        if one.producer_id != header.producer_id
                        or one.last_offset > header.base_offset
                    ]
                    continue
                if header.is_transactional and header.producer_id in aborting:
                    continue
                for record in iter_records(read.records, header):
                    if offset <= record.offset:
                        yield record.offset
            if read.next_offset <= offset:
                return
            offset = read.next_offset


STEPS = {
    History.append: 12,
    History.end_transaction: 6,
    History.replicate: 8,
    History.fail_over: 1,
    History.restart: 1,
    History.kill: 1,
    History.roll: 1,
    History.delete_records: 1,
}


@pytest.mark.parametrize("seed", [*range(10), 175])
def test_both_replicas_follow_the_model(seed: int) -> None:
    history = History(seed)
    for _ in range(80):
        step = history.random.choices(list(STEPS), list(STEPS.values()))[0]
        step(history)
        history.check()
