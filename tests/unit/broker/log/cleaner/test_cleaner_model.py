"""Random histories: whatever is compacted when, a reader of committed records sees the same table.

Beside the log stands a list of all that was ever appended. Steps append (plain, idempotent, in
transactions), end transactions, compact, let time pass, restart and kill; after every step of the
latter kinds the log is compared with the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from kraftrio.wire.records.batch import (
    Compression,
    Record,
    build_batch,
    iter_records,
    verify_crc,
)
from tests.support.cleaning import finish, start_run
from tests.support.logs import LogContext

KEYS = [b"", *(b"key %d" % number for number in range(8)), b"long" * 20]
CODECS = [Compression.NONE, Compression.NONE, Compression.GZIP, Compression.SNAPPY]
WITH_EPOCHS = 12  # a producer each of whose transactions has an epoch (transaction.version 2)
PLAIN, OPEN, COMMITTED, ABORTED = "plain", "open", "committed", "aborted"


@dataclass
class Appended:
    """A record as it was appended."""

    record: Record
    producer_id: int
    state: str


class History:
    """A log under random work."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.context = LogContext(
            cleanup_policy="compact",
            segment_bytes=self.random.choice((700, 1500, 4000)),
            index_interval_bytes=self.random.choice((50, 400)),
            delete_retention_ms=5000,
        )
        self.appended: dict[int, Appended] = {}
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.log_end_offset = 0
        self.compaction_count = 0

    # What is appended.

    def append(self, producer_id: int, state: str) -> None:
        """Append a batch of random records."""
        records = [
            Record(
                0,
                self.context.now_ms - self.random.randrange(1000),
                self.random.choice(KEYS),
                None if self.random.random() < 0.2 else b"%d" % self.random.randrange(10**9),
            )
            for _ in range(self.random.choice((1, 1, 2, 5)))
        ]
        sequence = self.sequences.get(producer_id, 0)
        data = build_batch(
            records,
            compression=self.random.choice(CODECS),
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0) if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=state == OPEN,
        )
        info = self.context.append_bytes(data)
        assert (info.base_offset, info.duplicate) == (self.log_end_offset, False)
        for record in records:
            kept = record._replace(offset=self.log_end_offset)
            self.appended[self.log_end_offset] = Appended(kept, producer_id, state)
            self.log_end_offset += 1
        self.sequences[producer_id] = sequence + len(records)

    def append_plain(self) -> None:
        self.append(self.random.choice((-1, 1, 2)), PLAIN)

    def append_in_transaction(self) -> None:
        self.append(self.random.choice((10, 11, 12)), OPEN)

    def end_transaction(self) -> None:
        open_items = [item for item in self.appended.values() if item.state == OPEN]
        if open_items:
            producer_id = self.random.choice(open_items).producer_id
            commit = self.random.random() < 0.5
            self.append_markers(producer_id, commit=commit)
            for item in open_items:
                if item.producer_id == producer_id:
                    item.state = COMMITTED if commit else ABORTED

    def append_markers(self, producer_id: int, *, commit: bool) -> None:
        """End a transaction as coordinators do: some with a new epoch, some twice."""
        epoch = self.epochs.get(producer_id, 0)
        if producer_id == WITH_EPOCHS:
            epoch += 1
            self.sequences[producer_id] = 0
        self.epochs[producer_id] = epoch
        for _ in range(self.random.choice((1, 1, 1, 2))):
            self.context.append_marker(producer_id, epoch, commit=commit)
            self.log_end_offset += 1

    def end_nothing(self) -> None:
        """Append the marker of a transaction that wrote nothing here."""
        idle = {10, 11, WITH_EPOCHS} - {
            item.producer_id for item in self.appended.values() if item.state == OPEN
        }
        if idle:
            commit = self.random.random() < 0.5
            self.append_markers(self.random.choice(sorted(idle)), commit=commit)

    # What happens to the log.

    def compact(self) -> None:
        self.context.commit()
        run = start_run(self.context, map_bytes=self.random.choice((1, 600, 1 << 20)))
        if run.log.first_dirty_offset < run.log.segments.active.base_offset:
            finish(run, self.context)
            self.compaction_count += 1

    def wait(self) -> None:
        self.context.now_ms += self.random.choice((10, 3000))

    def restart(self) -> None:
        self.context.restart()

    def kill(self) -> None:
        self.context.recovery_point = self.random.choice((0, self.context.log.recovery_point))
        if self.random.random() < 0.5:
            for name in self.context.files():
                if name.endswith(".snapshot"):
                    self.context.fs.remove(self.context.path(name))
        first_dirty_offset = self.context.log.first_dirty_offset
        self.context.kill()
        self.context.log.first_dirty_offset = self.random.choice((0, first_dirty_offset))
        assert self.context.log.recovery_events == ()

    # What a reader sees.

    def read_committed(self) -> list[Record]:
        log = self.context.log
        aborted = log.aborted_transactions(0, log.last_stable_offset)
        found: list[Record] = []
        for scanned in log.batches(0, log.last_stable_offset):
            header = scanned.header
            verify_crc(scanned.buffer, header)
            is_aborted = header.is_transactional and any(
                item.producer_id == header.producer_id
                and item.first_offset <= header.base_offset <= item.last_offset
                for item in aborted
            )
            if not header.is_control and not is_aborted:
                found += iter_records(scanned.buffer, header)
        return found

    def check(self) -> None:
        """Compare the log with what was appended."""
        self.context.commit()
        log = self.context.log
        assert log.log_end_offset == self.log_end_offset
        open_offsets = [o for o, item in self.appended.items() if item.state == OPEN]
        stable = min(open_offsets, default=self.log_end_offset)
        assert log.last_stable_offset == stable
        found = self.read_committed()
        for record in found:
            assert record == self.appended[record.offset].record
            assert self.appended[record.offset].state in (PLAIN, COMMITTED)
        expected = [
            item.record
            for offset, item in self.appended.items()
            if offset < stable and item.state in (PLAIN, COMMITTED)
        ]
        assert newest(found) == newest(expected)
        for start in range(0, self.log_end_offset, 7):
            offsets = [record.offset for record in self.context.read_all(start_offset=start)]
            assert offsets == sorted(set(offsets))


def newest(records: list[Record]) -> dict[bytes | None, Record]:
    """The last record of each key that has a value."""
    table = {record.key: record for record in records}
    return {key: record for key, record in table.items() if record.value is not None}


@pytest.mark.parametrize("seed", range(25))
def test_random_history(seed: int) -> None:
    """120 random steps, then compactions until nothing changes any more."""
    history = History(seed)
    appends = [
        *[history.append_plain, history.append_in_transaction, history.end_transaction] * 3,
        history.end_nothing,
    ]
    others = [history.compact, history.wait, history.restart, history.kill]
    for _ in range(120):
        if history.random.random() < 0.75:
            history.random.choice(appends)()
        else:
            history.random.choice(others)()
            history.check()
    while any(item.state == OPEN for item in history.appended.values()):
        history.end_transaction()
    for _ in range(3):
        history.context.log.roll(history.context.now_ms)
        history.context.commit()
        while history.context.log.first_dirty_offset < history.log_end_offset:
            history.compact()
            history.check()
        history.context.now_ms += 6000
        history.append_plain()
    size_bytes = history.context.log.size_bytes
    assert size_bytes < 61 * 40 + 100 * len(KEYS), "little more than the newest values is left"
