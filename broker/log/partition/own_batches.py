"""What is checked in batches that this broker built itself, before they are appended.

Coordinators build them, so what only clients get wrong is not checked: only sizes, the producer's
epoch, and for transaction markers the coordinator's. Only `partition_log` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition.append_validation import check_fits_segment
from kraftrio.broker.log.producers.producer_state import AppendOrigin, ProducerStateManager
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import (
    BatchHeader,
    assign_offsets,
    iter_headers,
    parse_header,
    set_log_append_time,
)
from kraftrio.wire.records.control import EndTransactionMarker, read_end_transaction_marker


class OwnBatches(NamedTuple):
    """Batches to append: their headers, and the transaction marker of each (or None)."""

    headers: list[BatchHeader]
    markers: list[EndTransactionMarker | None]


def check_own_batches(
    records: Buffer,
    config: LogConfig,
    producers: ProducerStateManager,
    now_ms: int,
    origin: AppendOrigin,
    transaction_version: int,
    guard: VerificationGuard | None = None,
) -> OwnBatches:
    """Check batches, and change nothing. Raises KafkaError: they are refused."""
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "nothing to append")
    headers = [parse_header(records)]
    if headers[0].size_bytes != len(records):  # there is more than one, as seldom
        headers = list(iter_headers(records))
    markers: list[EndTransactionMarker | None] = []
    for header in headers:
        if header.size_bytes > config.max_message_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{header.size_bytes} bytes")
        check_fits_segment(header.size_bytes, config)
        marker = None
        if header.producer_id >= 0:
            marker = read_end_transaction_marker(records, header)
            producers.check(
                header,
                now_ms,
                origin,
                marker=marker,
                transaction_version=transaction_version,
                guard=guard,
            )
        markers.append(marker)
    return OwnBatches(headers, markers)


def stamp_own_batches(
    records: bytearray | memoryview,
    headers: Sequence[BatchHeader],
    config: LogConfig,
    now_ms: int,
    base_offset: int,
    leader_epoch: int,
) -> None:
    """Give the batches their offsets from `base_offset` on, the epoch, and the append time."""
    offset = base_offset
    for header in headers:
        if config.log_append_time:
            set_log_append_time(records, header, now_ms)
        assign_offsets(records, header, offset, leader_epoch)
        offset = header.next_offset
