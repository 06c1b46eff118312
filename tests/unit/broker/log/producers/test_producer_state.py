"""Producer state: sequences, epochs, duplicates, transactions, snapshots, expiry."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kraftrio.broker.log.producers.producer_state import (
    AppendOrigin,
    CompletedTransaction,
    Duplicate,
    ProducerStateManager,
    decode_snapshot,
)
from kraftrio.broker.log.segment.txn_index import AbortedTxn, decode_index
from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError
from kraftrio.wire.records.batch import MAX_PRODUCER_EPOCH, MAX_SEQUENCE, BatchHeader, iter_headers
from kraftrio.wire.records.control import EndTransactionMarker, read_end_transaction_marker
from tests.unit.broker.log.producers.producer_context import DAY_MS, T0, Partition, header_of

LOG_DIRS = Path(__file__).resolve().parents[4] / "data" / "log-dirs"


@pytest.fixture
def partition() -> Partition:
    return Partition()


# Sequences and epochs


def test_repeats_of_the_last_five_batches_are_answered_as_the_original(
    partition: Partition,
) -> None:
    """Each of five batches sent again gets its first offset and time, and nothing is appended."""
    for i in range(5):
        assert partition.send(i * 2, 2, timestamp=T0 + i) == i * 2
    for i in range(5):
        assert partition.send(i * 2, 2) == Duplicate(i * 2, i * 2 + 1, T0 + i)
    assert partition.end_offset == 10


def test_repeat_of_the_sixth_last_batch_is_out_of_order(partition: Partition) -> None:
    """Only five batches are kept: an older repeat is refused, as Kafka does."""
    for i in range(6):
        partition.send(i)
    assert partition.refused(0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(1) == Duplicate(1, 1, T0)


def test_a_repeat_must_be_exact(partition: Partition) -> None:
    """A batch that only overlaps a known one is not a duplicate."""
    partition.send(0, 3)
    assert partition.refused(0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(1, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(2, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(0, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gaps_are_out_of_order(partition: Partition) -> None:
    """A batch that skips sequences is refused, its predecessor then accepted."""
    partition.send(0)
    assert partition.refused(2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(1) == 1
    assert partition.send(2) == 2


def test_unknown_producer_may_start_anywhere(partition: Partition) -> None:
    """Without state any first sequence is accepted: earlier records may have been deleted."""
    assert partition.send(17) == 0
    assert partition.send(18) == 1
    assert partition.refused(17 + 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_new_epoch_starts_at_zero(partition: Partition) -> None:
    """A bumped epoch is accepted with sequence 0 only, and forgets the old batches."""
    partition.send(0)
    assert partition.refused(3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(0, epoch=1) == 1
    assert partition.send(0, epoch=1) == Duplicate(1, 1, T0)
    assert partition.refused(0, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refused(1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_between_batches(partition: Partition) -> None:
    """0 follows 2^31-1."""
    partition.send(MAX_SEQUENCE - 1, 2)
    assert partition.refused(1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(0) == 2
    assert partition.send(MAX_SEQUENCE - 1, 2) == Duplicate(0, 1, T0)


def test_sequences_wrap_inside_a_batch(partition: Partition) -> None:
    """A batch over the border is kept, found again and followed by the right sequence."""
    partition.send(MAX_SEQUENCE - 1, 5)
    assert partition.send(MAX_SEQUENCE - 1, 5) == Duplicate(0, 4, T0)
    assert partition.refused(0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(3) == 5
    (entry,) = partition.state.active_producers()
    assert [batch.base_sequence for batch in entry.batches] == [MAX_SEQUENCE - 1, 3]
    assert entry.last_offset == 5


def test_producers_do_not_mix(partition: Partition) -> None:
    """Each producer id has its own sequences; batches without an id have none."""
    partition.send(0, pid=1)
    partition.send(0, pid=2)
    partition.send(-1, pid=-1, epoch=-1)
    assert partition.send(1, pid=1) == 3
    assert partition.refused(5, pid=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert {entry.producer_id for entry in partition.state.active_producers()} == {1, 2}


def test_coordinator_and_replicas_skip_checks(partition: Partition) -> None:
    """A coordinator's own batches have epochs only; replicated ones are taken as they are."""
    partition.send(0, epoch=3)
    coordinator = AppendOrigin.COORDINATOR
    assert partition.send(9, epoch=3, origin=coordinator) == 1
    assert partition.refused(9, epoch=2, origin=coordinator) is ErrorCode.INVALID_PRODUCER_EPOCH
    for _ in range(2):
        partition.state.update(header_of(1, 2, 40, 1), partition.end_offset, T0)
        partition.end_offset += 1
    entry = partition.state.get(1)
    assert entry is not None
    assert (entry.producer_epoch, entry.last_sequence) == (2, 40)


def test_check_alone_changes_nothing(partition: Partition) -> None:
    """A batch that was checked but failed to be written can be sent again (no ghost state)."""
    header = header_of(1, 0, 0, 3, transactional=True)
    assert partition.state.check(header, T0) is None
    assert len(partition.state) == 0
    assert partition.state.first_unstable_offset is None
    assert partition.send(0, 3, txn=True) == 0


# Transactions


def test_open_transaction_holds_the_stable_offset(partition: Partition) -> None:
    """The first unstable offset is that of the transaction's first record, not a later one."""
    partition.send(-1, 4, pid=-1, epoch=-1)
    partition.send(0, 2, txn=True)
    partition.send(2, 2, txn=True)
    assert partition.state.first_unstable_offset == 4
    assert partition.state.has_ongoing_transaction(1, 0)
    assert not partition.state.has_ongoing_transaction(1, 1)
    assert not partition.state.has_ongoing_transaction(2, 0)
    completed = partition.end()
    assert completed == CompletedTransaction(1, 4, 8, False, 9)
    assert not partition.state.has_ongoing_transaction(1, 0)


def test_marker_must_be_replicated_before_the_offset_moves(partition: Partition) -> None:
    """A decided transaction stays unstable until the high watermark is above its marker."""
    partition.send(0, txn=True)
    partition.end(commit=False)
    assert partition.state.first_unstable_offset == 0
    partition.state.on_high_watermark(1)
    assert partition.state.first_unstable_offset == 0
    partition.state.on_high_watermark(2)
    assert partition.state.first_unstable_offset is None


def test_interleaved_transactions(partition: Partition) -> None:
    """The oldest undecided transaction counts; markers say what the stable offset was then."""
    partition.send(0, pid=1, txn=True)
    partition.send(0, pid=2, txn=True)
    partition.send(0, pid=3, txn=True)
    assert partition.end(pid=2, commit=False) == CompletedTransaction(2, 1, 3, True, 0)
    assert partition.end(pid=1, commit=False) == CompletedTransaction(1, 0, 4, True, 2)
    partition.state.on_high_watermark(5)
    assert partition.state.first_unstable_offset == 2
    assert partition.end(pid=3) == CompletedTransaction(3, 2, 5, False, 6)


def test_unreplicated_transactions_are_found_whatever_the_order_of_markers(
    partition: Partition,
) -> None:
    """The transaction that began first holds the offset although it was decided last."""
    partition.send(0, pid=1, txn=True)
    partition.send(0, pid=2, txn=True)
    partition.end(pid=2)
    partition.end(pid=1)
    assert partition.state.first_unstable_offset == 0
    partition.state.on_high_watermark(3)
    assert partition.state.first_unstable_offset == 0
    partition.state.on_high_watermark(4)
    assert partition.state.first_unstable_offset is None


def test_marker_without_records(partition: Partition) -> None:
    """A transaction without records here completes nothing, but leaves epoch and coordinator."""
    assert partition.end(epoch=4, coordinator_epoch=2) is None
    entry = partition.state.get(1)
    assert entry is not None
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_sequence) == (4, 2, -1)
    assert partition.refused(3, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.send(0, epoch=4) == 1


def test_sequences_go_on_after_a_marker_of_the_same_epoch(partition: Partition) -> None:
    """With one epoch over several transactions (before KIP-890) sequences do not restart."""
    partition.send(0, 3, txn=True)
    partition.end()
    assert partition.refused(0, 1, txn=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(3, txn=True) == 4


def test_marker_with_a_new_epoch_fences(partition: Partition) -> None:
    """A marker's bumped epoch shuts the old producer out, and its next sequence is 0."""
    partition.send(0, 3, txn=True)
    partition.end(epoch=1)
    assert partition.refused(3, epoch=0, txn=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refused(3, epoch=1, txn=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(0, epoch=1, txn=True) == 4


def test_markers_of_old_epochs_and_old_coordinators_are_refused(partition: Partition) -> None:
    """A zombie coordinator's marker is 52, one of an older producer epoch 47."""
    partition.send(0, epoch=5, txn=True)
    assert partition.end_refused(epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.end(epoch=5, coordinator_epoch=3) is not None
    refused = partition.end_refused(epoch=5, coordinator_epoch=2)
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert partition.end(epoch=5, coordinator_epoch=3) is None


def test_markers_of_transaction_version_2_need_a_new_epoch(partition: Partition) -> None:
    """A marker of the current epoch is late while a transaction is open, else it is a repeat."""
    late = ErrorCode.INVALID_PRODUCER_EPOCH
    partition.send(0, txn=True)
    assert partition.end_refused(epoch=0, version=2) is late
    assert partition.end(epoch=1, version=2) is not None
    assert partition.end(epoch=1, version=2) is None
    assert partition.end_refused(epoch=0, version=2) is late
    partition.send(0, epoch=1, txn=True)
    assert partition.end_refused(epoch=1, version=2) is late
    assert partition.state.has_ongoing_transaction(1, 1)


def test_the_last_epoch_of_a_producer_id_ends_with_a_marker_of_its_own(
    partition: Partition,
) -> None:
    """There is none above it: the producer goes on under another id (KIP-890)."""
    partition.send(0, epoch=MAX_PRODUCER_EPOCH, txn=True)
    assert partition.end(epoch=MAX_PRODUCER_EPOCH, version=2) is not None


def test_plain_batch_in_an_open_transaction(partition: Partition) -> None:
    """Between a transaction's batches its producer may not write outside of it."""
    partition.send(0, txn=True)
    assert partition.refused(1) is ErrorCode.INVALID_TXN_STATE


def test_emptied_control_batch(partition: Partition) -> None:
    """A marker that compaction took away changes nothing but the end of what is recorded."""
    partition.send(0, txn=True)
    header = header_of(1, 0, -1, 1, transactional=True, control=True)
    assert partition.state.check(header, T0, AppendOrigin.COORDINATOR) is None
    assert partition.state.update(header, 1, T0) is None
    assert partition.state.first_unstable_offset == 0
    assert partition.state.map_end_offset == 2


def test_deleted_records_release_decided_transactions(partition: Partition) -> None:
    """A new log start forgets completed transactions before it; producers stay."""
    partition.send(0, txn=True)
    partition.end()
    partition.state.on_log_start_offset(2)
    assert partition.state.first_unstable_offset is None
    assert partition.state.get(1) is not None
    partition.state.on_log_start_offset(50)
    assert partition.state.map_end_offset == 50


# Expiry


def test_expiry_counts_from_the_last_batch_by_the_brokers_clock() -> None:
    """A client timestamp that is missing or years old does not make its producer expire."""
    partition = Partition(expiration_ms=1000)
    for sequence, timestamp in enumerate((-1, 5, T0 - 400 * DAY_MS)):
        partition.now_ms += 900
        assert partition.send(sequence, timestamp=timestamp) == sequence
        assert partition.state.expire(partition.now_ms) == []
    assert partition.state.expire(partition.now_ms + 999) == []
    assert partition.state.expire(partition.now_ms + 1000) == [1]
    assert partition.send(77) == 3


def test_expired_producer_counts_as_unknown_before_it_is_collected() -> None:
    """State that is too old is not used even if nobody called expire yet."""
    partition = Partition(expiration_ms=1000)
    partition.send(0, epoch=3)
    partition.now_ms += 1000
    assert partition.send(9, epoch=1) == 1
    (entry,) = partition.state.active_producers()
    assert (entry.producer_epoch, len(entry.batches)) == (1, 1)


def test_open_transaction_does_not_expire() -> None:
    """The producer of an open transaction is kept, and so is the stable offset."""
    partition = Partition(expiration_ms=1000)
    partition.send(0, txn=True)
    assert partition.state.expire(T0 + DAY_MS) == []
    assert partition.state.first_unstable_offset == 0
    partition.now_ms += DAY_MS
    partition.end()
    assert partition.state.expire(T0 + 2 * DAY_MS) == [1]


def test_clock_that_goes_back_expires_no_producer() -> None:
    """A step back of the clock is tolerated."""
    partition = Partition(expiration_ms=1000)
    partition.send(0)
    partition.now_ms -= DAY_MS
    assert partition.state.expire(partition.now_ms) == []
    assert partition.send(1) == 1


# Snapshots


SNAPSHOTS = sorted(LOG_DIRS.glob("*/*.snapshot"))


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recorded_snapshots_are_written_again_to_the_byte(path: Path) -> None:
    """Kafka's snapshot files are read and written without a change."""
    state = ProducerStateManager()
    state.load_snapshot(path.read_bytes(), int(path.stem), T0)
    assert state.snapshot_bytes() == path.read_bytes()
    assert state.map_end_offset == int(path.stem)


def test_recorded_snapshot_fields() -> None:
    """The fields of the recorded file are those that Kafka's own tool printed."""
    entries = decode_snapshot((LOG_DIRS / "txn-0" / f"{17:020d}.snapshot").read_bytes())
    first, _, third = entries
    assert (first.producer_id, first.producer_epoch, first.coordinator_epoch) == (1, 2, 0)
    assert (first.last_sequence, first.last_offset, first.last_timestamp) == (0, 14, 1795818038571)
    assert first.current_txn_first_offset is None
    assert (third.producer_id, third.coordinator_epoch) == (3, -1)
    assert third.current_txn_first_offset == 16


def test_recorded_log_leads_to_the_recorded_files() -> None:
    """Replaying Kafka's log gives its snapshots, its transaction index and its stable offset."""
    folder = LOG_DIRS / "txn-0"
    buf = (folder / f"{0:020d}.log").read_bytes()
    state = ProducerStateManager()
    aborted = []
    for header in iter_headers(buf):
        marker = read_end_transaction_marker(buf, header)
        origin = AppendOrigin.COORDINATOR if marker else AppendOrigin.CLIENT
        assert state.check(header, T0, origin, marker=marker) is None
        completed = state.update(header, header.base_offset, T0, marker=marker)
        if completed is not None and completed.is_aborted:
            aborted.append(
                AbortedTxn(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    completed.last_stable_offset,
                )
            )
        if header.next_offset in (17, 19):
            recorded = folder / f"{header.next_offset:020d}.snapshot"
            assert state.snapshot_bytes() == recorded.read_bytes()
    assert aborted == decode_index((folder / f"{0:020d}.txnindex").read_bytes())
    state.on_high_watermark(19)
    assert state.first_unstable_offset == 16


def test_state_survives_a_snapshot() -> None:
    """After loading, the last batch is still a duplicate, sequences go on, transactions hold."""
    partition = Partition()
    partition.send(0, 2, timestamp=T0 + 7)
    partition.send(0, pid=2, txn=True)
    partition.send(0, pid=3, txn=True)
    partition.end(pid=5, epoch=3, coordinator_epoch=8)
    data = partition.state.snapshot_bytes()
    partition.state.load_snapshot(data, partition.end_offset, T0)
    assert partition.state.first_unstable_offset == 2
    assert partition.send(0, 2) == Duplicate(0, 1, T0 + 7)
    assert partition.send(2) == 5
    assert partition.end(pid=2, commit=False) == CompletedTransaction(2, 2, 6, True, 3)
    refused = partition.end_refused(pid=5, epoch=3, coordinator_epoch=7)
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_loaded_producers_count_as_active_now() -> None:
    """Producers with old timestamps do not expire because the broker restarted."""
    partition = Partition(expiration_ms=1000)
    partition.send(0, timestamp=-1)
    now_ms = T0 + 5000
    partition.state.load_snapshot(partition.state.snapshot_bytes(), 1, now_ms)
    assert partition.state.expire(now_ms + 999) == []
    assert partition.state.expire(now_ms + 1000) == [1]


def test_transactions_of_a_snapshot_are_ordered_by_offset() -> None:
    """Entries of a snapshot come in any order; the oldest open transaction still counts."""
    partition = Partition()
    partition.send(0, pid=9)
    partition.send(0, pid=1, txn=True)
    partition.send(1, pid=9, txn=True)
    partition.state.load_snapshot(partition.state.snapshot_bytes(), 3, T0)
    assert partition.state.first_unstable_offset == 1
    partition.end(pid=1)
    partition.state.on_high_watermark(99)
    assert partition.state.first_unstable_offset == 2


def test_damaged_snapshots_are_refused() -> None:
    """Any flipped bit, cut or wrong count is CorruptBatchError and leaves the state alone."""
    partition = Partition()
    partition.send(0)
    partition.send(0, pid=2, txn=True)
    good = partition.state.snapshot_bytes()
    damaged = [good[:end] for end in range(len(good))] + [good + b"\x00"]
    for position in range(len(good)):
        flipped = bytearray(good)
        flipped[position] ^= 0x10
        damaged.append(bytes(flipped))
    for data in damaged:
        with pytest.raises(CorruptBatchError):
            partition.state.load_snapshot(data, 0, T0)
    assert partition.state.snapshot_bytes() == good
    partition.state.clear(12)
    assert (len(partition.state), partition.state.first_unstable_offset) == (0, None)
    assert partition.state.map_end_offset == 12


# Random histories against a model


def model_unstable(log: list[tuple[int, BatchHeader, bool]], high_watermark: int) -> int | None:
    """Find the first unstable offset by looking at the whole log."""
    open_since: dict[int, int] = {}
    unstable = []
    for offset, header, is_marker in log:
        if is_marker:
            first = open_since.pop(header.producer_id, None)
            if first is not None and offset >= high_watermark:
                unstable.append(first)
        elif header.is_transactional:
            open_since.setdefault(header.producer_id, offset)
    return min([*open_since.values(), *unstable], default=None)


@pytest.mark.parametrize("seed", range(25))
def test_random_histories(seed: int) -> None:
    """Accepted, duplicate and refused batches and the stable offset agree with a plain model;
    a restart from any earlier snapshot plus replay gives the same state."""
    rng = random.Random(seed)
    state = ProducerStateManager()
    log: list[tuple[int, BatchHeader, bool]] = []
    history: dict[int, list[tuple[int, int, int, int]]] = {}  # pid -> (epoch, seq, count, offset)
    next_sequence: dict[int, tuple[int, int]] = {}
    snapshots = [(0, state.snapshot_bytes())]
    end = high_watermark = 0
    marker = EndTransactionMarker(False, 0)
    for _ in range(250):
        pid = rng.randrange(4)
        epoch, expected = next_sequence.get(pid, (0, 0))
        dice = rng.random()
        if dice < 0.15:
            header = header_of(pid, epoch, -1, 1, transactional=True, control=True)
            assert state.check(header, T0, AppendOrigin.COORDINATOR, marker=marker) is None
            state.update(header, end, T0, marker=marker)
            log.append((end, header, True))
            next_sequence.setdefault(pid, (epoch, 0))
            end += 1
        elif dice < 0.25 and history.get(pid):
            old_epoch, sequence, count, offset = rng.choice(history[pid])
            header = header_of(pid, old_epoch, sequence, count, transactional=True)
            kept = [row for row in history[pid] if row[0] == epoch][-5:]
            if (old_epoch, sequence, count, offset) in kept:
                assert state.check(header, T0) == Duplicate(offset, offset + count - 1, T0)
            else:
                with pytest.raises(KafkaError):
                    state.check(header, T0)
        elif dice < 0.3:
            header = header_of(pid, epoch, expected + 1 + rng.randrange(9), 1, transactional=True)
            if pid in next_sequence:
                with pytest.raises(KafkaError):
                    state.check(header, T0)
        else:
            if dice > 0.95:
                epoch, expected = epoch + 1, 0
            count = rng.randrange(1, 4)
            header = header_of(pid, epoch, expected, count, transactional=True)
            assert state.check(header, T0) is None
            state.update(header, end, T0)
            log.append((end, header, False))
            history.setdefault(pid, []).append((epoch, expected, count, end))
            next_sequence[pid] = (epoch, expected + count)
            end += count
        if rng.random() < 0.3:
            high_watermark = rng.randint(high_watermark, end)
            state.on_high_watermark(high_watermark)
        assert state.first_unstable_offset == model_unstable(log, high_watermark)
        if rng.random() < 0.05:
            snapshots.append((end, state.snapshot_bytes()))
    for offset, data in snapshots:
        restarted = ProducerStateManager()
        restarted.load_snapshot(data, offset, T0)
        for base_offset, header, is_marker in log:
            if base_offset >= offset:
                restarted.update(header, base_offset, T0, marker=marker if is_marker else None)
        assert sorted(decode_snapshot(restarted.snapshot_bytes()), key=lambda e: e.producer_id) == (
            sorted(decode_snapshot(state.snapshot_bytes()), key=lambda e: e.producer_id)
        )
        restarted.on_high_watermark(end)
        state.on_high_watermark(end)
        assert restarted.first_unstable_offset == state.first_unstable_offset
