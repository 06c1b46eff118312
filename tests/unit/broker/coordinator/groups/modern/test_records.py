"""Records of groups stay with what they say."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.modern.records import record_of, tombstone_of
from kraftrio.wire.messages.group_records.keys import ShareGroupMetadataKey, decode_key
from kraftrio.wire.messages.group_records.share import ShareGroupMetadataValue
from kraftrio.wire.messages.group_records.values import decode_value

_KEY = ShareGroupMetadataKey(group_id="g")


def test_a_record_has_what_decoding_it_would_give() -> None:
    record = record_of(_KEY, ShareGroupMetadataValue(epoch=3, metadata_hash=7))
    assert record.value is not None
    read = decode_key(record.key), decode_value(ShareGroupMetadataValue, record.value)
    assert record.messages == read


def test_so_has_a_tombstone() -> None:
    record = tombstone_of(_KEY)
    assert record.value is None
    assert record.messages == (decode_key(record.key), None)


def test_who_makes_a_record_may_know_what_it_says() -> None:
    """Who applies it then need not make that of the value."""
    value = ShareGroupMetadataValue(epoch=3, metadata_hash=7)
    record = record_of(_KEY, value, "the third epoch")
    assert record.messages == (_KEY, "the third epoch")
    assert record.value == record_of(_KEY, value).value
