"""Keys of share partitions: written and read as Kafka does."""

from __future__ import annotations

import pytest

from kraftrio.broker.share_state import SharePartitionKey, read_coordinator_key
from kraftrio.wire.errors import ErrorCode, KafkaError

TOPIC = bytes(range(16))
TEXT = "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize("group_id", ["g", "a:b", ":", "a b", "größe"])
def test_a_key_is_read_as_it_was_written(group_id: str) -> None:
    key = SharePartitionKey(group_id, TOPIC, 12)
    assert key.coordinator_key == f"{group_id}:{TEXT}:12"
    assert read_coordinator_key(key.coordinator_key) == key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Share partition key cannot be empty"),
        ("g", "Invalid key format: expected - groupId:topicId:partition, found - g"),
        (
            f"{TEXT}:1",
            f"Invalid key format: expected - groupId:topicId:partition, found - {TEXT}:1",
        ),
        (f":{TEXT}:1", "GroupId must not be empty"),
        (f" :{TEXT}:1", "GroupId must not be empty"),
        ("g:short:1", "Invalid topic ID: short"),
        (f"g:{TEXT}A:1", f"Invalid topic ID: {TEXT}A"),
        (f"g:{TEXT}:", "Invalid partition: "),
        (f"g:{TEXT}:x", "Invalid partition: x"),
        (f"g:{TEXT}:2147483648", "Invalid partition: 2147483648"),
        (f"g:{TEXT}:" + "9" * 5000, "Invalid partition: " + "9" * 5000),
    ],
)
def test_bad_keys_are_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(KafkaError) as caught:
        read_coordinator_key(text)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, reason)


def test_a_signed_partition_is_a_number() -> None:
    """As Java reads it; the coordinator refuses a negative one."""
    assert read_coordinator_key(f"g:{TEXT}:-1").partition == -1
    assert read_coordinator_key(f"g:{TEXT}:+7").partition == 7
