"""Batches that are built a few records at a time."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.wire.records.batch import Record, build_batch
from kraftrio.wire.records.builder import BatchBuilder
from kraftrio.wire.records.compression import Compression


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("sizes", [(1,), (3, 1), (60, 10, 70), (8000, 1, 400)])
def test_parts_make_the_batch_of_the_whole(
    sizes: tuple[int, ...], compression: Compression
) -> None:
    """Byte for byte, across the widths of offset deltas; null values are tombstones."""
    builder = BatchBuilder(1_700_000_000_000)
    records: list[Record] = []
    for size in sizes:
        part = [(b"key%d" % i, None if i % 5 == 0 else b"v" * (i % 200)) for i in range(size)]
        builder.add(part)
        records += [Record(0, 1_700_000_000_000, key, value) for key, value in part]
    assert builder.record_count == sum(sizes)
    built = builder.build(compression=compression, base_sequence=0)
    assert built == build_batch(records, compression=compression, base_sequence=0)
    of_producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "transactional": True}
    built = builder.build(compression=compression, base_sequence=0, **of_producer)
    assert built == build_batch(records, compression=compression, base_sequence=0, **of_producer)
