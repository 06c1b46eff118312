"""Makes the records of groups whose partitions the broker assigns.

What a record says stays with its bytes: the shard that appends it need not read it.
"""

from __future__ import annotations

from typing import Any

from kraftrio.broker.coordinator.outcome import (
    CoordinatorRecord,
    RecordMessages,
    RecordWithMessages,
)
from kraftrio.wire.messages.group_records.keys import GroupRecordKey, encode_key
from kraftrio.wire.messages.group_records.values import encode_value


def record_of(key: GroupRecordKey, value: Any, says: Any = None) -> CoordinatorRecord:
    """Make the record of a value.

    Args:
        says: what who applies the record would make of the value; None: to be made of it.
    """
    record = RecordWithMessages(encode_key(key), encode_value(value))
    record.messages = RecordMessages(key, value if says is None else says)
    return record


def tombstone_of(key: GroupRecordKey) -> CoordinatorRecord:
    """Make the record that removes what a key stands for."""
    record = RecordWithMessages(encode_key(key), None)
    record.messages = RecordMessages(key, None)
    return record
