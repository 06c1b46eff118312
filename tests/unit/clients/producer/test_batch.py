"""A batch of the producer keeps what its records failed with, also when it went in parts."""

from __future__ import annotations

import pytest

from kraftrio.clients.errors import NotEnoughReplicasError, RecordTooLargeError
from kraftrio.clients.producer.batch import Batch, Delivery


def a_batch(records: int) -> Batch:
    """Return a closed batch with some records."""
    batch = Batch("t", 0, (0,), 0.0, 1 << 20, 1 << 20)
    for number in range(records):
        batch.values.append(b"%d" % number * 100)
        batch.keys.append(None)
        batch.timestamps.append(number)
    batch.is_closed = True
    batch.record_count = records
    return batch


def test_a_delivered_batch_has_no_failure() -> None:
    """Nothing is raised for what the broker has."""
    batch = a_batch(3)
    assert Delivery(batch, 2).batch is batch
    batch.deliver(7, -1)
    batch.raise_failure()


def test_a_failed_batch_raises_its_error_each_time() -> None:
    """Everybody gets an exception of their own, with code and message."""
    batch = a_batch(3)
    batch.fail(NotEnoughReplicasError("too few"))
    for _ in range(2):
        with pytest.raises(NotEnoughReplicasError, match="too few") as caught:
            batch.raise_failure()
        assert caught.value is not batch.error


def test_a_split_batch_raises_what_any_part_failed_with() -> None:
    """Also that of a part of a part, between others that were delivered."""
    batch = a_batch(9)
    first, middle, last = batch.split(500)
    small, large = middle.split(250)[:2]
    assert middle.parts is not None
    for part in (first, last, small, *middle.parts[2:]):
        part.deliver(0, -1)
    large.fail(RecordTooLargeError("large"))
    with pytest.raises(RecordTooLargeError, match="large"):
        batch.raise_failure()
