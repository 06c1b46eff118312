"""The values of a batch alone are those that the records have, whatever the records are like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftrio.wire.errors import KafkaError
from kraftrio.wire.records.batch import Compression, Record, build_batch, iter_records, parse_header
from kraftrio.wire.records.values import batch_values, decode_values
from tests.unit.wire.batches import T0, log_bytes

RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(T0, T0 + 100_000),
        st.none() | st.binary(max_size=80),
        st.none() | st.binary(max_size=200),
        st.just(()) | st.just((("name", b"x" * 70), ("", None))),
    ),
    min_size=1,
    max_size=100,
)


@given(RECORDS, st.sampled_from([Compression.NONE, Compression.LZ4]))
def test_values_of_any_records(records: list[Record], compression: Compression) -> None:
    data = build_batch(records, compression=compression)
    assert batch_values(data, parse_header(data)) == [record.value for record in records]


@pytest.mark.parametrize("value", [b"x" * 100, b"", None])
@pytest.mark.parametrize("key", [b"k" * 9, None])
def test_values_of_records_that_are_alike(value: bytes | None, key: bytes | None) -> None:
    """Also where offset deltas grow longer, and where they stop to be alike."""
    records = [Record(0, T0, key, value)] * 9_000 + [Record(0, T0, b"", b"last", (("h", None),))]
    data = build_batch(records)
    assert batch_values(data, parse_header(data)) == [value] * 9_000 + [b"last"]


def test_values_of_recorded_batches() -> None:
    data = log_bytes("codec-gzip-0")
    header = parse_header(data)
    assert batch_values(data, header) == [record.value for record in iter_records(data, header)]


@pytest.mark.parametrize("size", [5, 50])
def test_damage_is_refused(size: int) -> None:
    """No byte may be missing or too many, and none lies about where a field ends."""
    data = bytes(build_batch([Record(0, T0, None, b"v" * size)] * 12))[61:]
    assert decode_values(data, 12) == [b"v" * size] * 12
    for damaged in (data[:-1], data + b"\0", data[1:]):
        with pytest.raises(KafkaError):
            decode_values(damaged, 12)
    for count in (11, 13):
        with pytest.raises(KafkaError):
            decode_values(data, count)
    longer = bytearray(data)
    longer[0] += 2
    with pytest.raises(KafkaError):
        decode_values(bytes(longer), 12)
