"""Producer state from what is on disk: the newest snapshot, then the headers of the batches after
it.

A snapshot file holds only the last batch of each producer (Kafka's format), but a client may repeat
any of its last five: the older ones are recalled from the batches just before the snapshot. Nor
does it know of transactions whose markers are in the log, but not below the high watermark: where
there are such, an older snapshot and a longer replay find where they began.

A batch that went bad since it was flushed stays for the operator, and is passed over: all others
count, those after it, too.

Used at start, after a truncation, and to rebuild a damaged transaction index. What comes out equals
what the appends left: the same `ProducerStateManager.update` sees the same batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from kraftrio.broker.log.producers.producer_state import CompletedTransaction, ProducerStateManager
from kraftrio.broker.log.producers.snapshots import ProducerSnapshots
from kraftrio.broker.log.segment.batch_scan import ScannedBatch
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.broker.log.segment.txn_index import AbortedTxn
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.records.batch import BatchHeader
from kraftrio.wire.records.control import EndTransactionMarker, read_end_transaction_marker

_logger = logging.getLogger(__name__)

# How much of the log before a snapshot is looked through for the batches it does not hold: one
# read, since every partition with producers pays it at start.
_RECALL_BYTES = 1 << 20


def record_producer(
    state: ProducerStateManager,
    segment: Segment,
    header: BatchHeader,
    marker: EndTransactionMarker | None,
    now_ms: int,
) -> None:
    """Bring a batch that is in the log into the producer state and the transaction index."""
    completed = state.update(header, header.base_offset, now_ms, marker=marker)
    if completed is not None and completed.is_aborted:
        segment.indexes.transactions.append(_aborted(completed))


def _aborted(completed: CompletedTransaction) -> AbortedTxn:
    return AbortedTxn(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        completed.last_stable_offset,
    )


def rebuild_producer_state(
    state: ProducerStateManager,
    snapshots: ProducerSnapshots,
    segments: Sequence[Segment],
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    high_watermark: int | None = None,
) -> None:
    """Make `state` that before `end_offset`.

    Args:
        high_watermark: None: not known. Then all that a snapshot knows to be decided is replicated.
    """
    start = snapshots.load_latest(state, end_offset, now_ms)
    if (
        start is not None
        and high_watermark is not None
        and high_watermark < start
        and _has_markers(segments, high_watermark, start)
    ):
        start = snapshots.load_latest(state, high_watermark, now_ms)
    if start is None:
        start = log_start_offset
        state.clear(start)
    elif len(state):
        _recall_older_batches(state, segments, start)
    for segment in segments:
        if segment.end_offset <= start or segment.base_offset >= end_offset:
            continue
        position = 0
        if segment.base_offset < start:
            position = segment.indexes.position_before(start)
        for batch in _good_batches(segment, position):
            header = batch.header
            if header.base_offset >= end_offset:
                break
            if header.producer_id >= 0 and header.base_offset >= start:
                marker = read_end_transaction_marker(batch.buffer, header)
                state.update(header, header.base_offset, now_ms, marker=marker)
    state.map_end_offset = max(state.map_end_offset, end_offset)


def _good_batches(
    segment: Segment, position: int, *, check_crc: bool = True
) -> Iterator[ScannedBatch]:
    """The batches of a segment from a position on, without damaged ones, which the log names."""
    log_file = segment.log_file
    while position < segment.size_bytes:
        try:
            for batch in log_file.scan(position, check_crc=check_crc):
                yield batch
                position = batch.position + batch.header.size_bytes
            return
        except CorruptBatchError as error:
            _logger.error("damaged batch in %r: %s", segment, error)
        try:
            position += next(log_file.scan(position)).header.size_bytes
        except CorruptBatchError:
            return  # nothing says where the next one begins


def _has_markers(segments: Sequence[Segment], start_offset: int, end_offset: int) -> bool:
    """Whether transactions were decided between two offsets."""
    for segment in segments:
        if segment.end_offset <= start_offset or segment.base_offset >= end_offset:
            continue
        position = 0
        if segment.base_offset < start_offset:
            position = segment.indexes.position_before(start_offset)
        for batch in _good_batches(segment, position, check_crc=False):
            header = batch.header
            if header.base_offset >= end_offset:
                break
            if header.is_control and header.base_offset >= start_offset:
                return True
    return False


def _recall_older_batches(
    state: ProducerStateManager, segments: Sequence[Segment], snapshot_offset: int
) -> None:
    """Give the producers of a snapshot back the batches before their last one.

    They may lie in several segments: a log may have been rolled after each of them.
    """
    budget_bytes = _RECALL_BYTES
    for segment in reversed(segments):
        if segment.base_offset >= snapshot_offset:
            continue
        if budget_bytes <= 0:
            return
        end_position = segment.size_bytes
        if segment.end_offset > snapshot_offset:
            end_position = segment.indexes.position_before(snapshot_offset)
        start_position = _recall_position(segment, snapshot_offset, end_position, budget_bytes)
        for header in reversed(_producer_batches(segment, start_position, snapshot_offset)):
            state.recall_batch(header)
        budget_bytes -= end_position - start_position


def _producer_batches(segment: Segment, position: int, end_offset: int) -> list[BatchHeader]:
    """The headers of producers' records from a position on."""
    seen: list[BatchHeader] = []
    for batch in _good_batches(segment, position):
        header = batch.header
        if header.base_offset >= end_offset:
            break
        if header.producer_id >= 0 and not header.is_control:
            seen.append(header)
    return seen


def _recall_position(
    segment: Segment, snapshot_offset: int, end_position: int, wanted_bytes: int
) -> int:
    """A batch's position about `wanted_bytes` before an offset, by steps of the sparse index."""
    back = 1024
    while True:
        position = segment.indexes.position_before(snapshot_offset - back)
        if position == 0 or end_position - position >= wanted_bytes:
            return position
        back *= 2


def rebuild_txn_index(
    segment: Segment, segments: Sequence[Segment], snapshots: ProducerSnapshots, reason: str
) -> list[AbortedTxn]:
    """Find the segment's aborted transactions in its batches again; return them."""
    _logger.warning("rebuild the transaction index of %r: %s", segment, reason)
    state = ProducerStateManager()
    base_offset = segment.base_offset
    rebuild_producer_state(state, snapshots, segments, 0, base_offset, 0)
    index = segment.indexes.transactions
    index.reset()
    for batch in segment.log_file.scan(check_crc=True):
        if batch.header.producer_id >= 0:
            marker = read_end_transaction_marker(batch.buffer, batch.header)
            record_producer(state, segment, batch.header, marker, 0)
    return index.entries
