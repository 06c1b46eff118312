"""Messages of share groups' data path, against frames that Apache Kafka 4.3.1 and a share consumer
of its sent each other.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledgePartition,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    SharePartitionData,
)

TOPIC_ID = bytes.fromhex("36d771bf53024af5b64bcd75c8474bcb")
MEMBER_ID = "d4PmAXIQRKCUwCG--EJ5sQ"


def check(message: object, version: int, recorded: str) -> None:
    """Encoded it is what was recorded, and that means the same."""
    assert encode(message, version).hex() == recorded
    decoded, end = decode(type(message), version, memoryview(bytes.fromhex(recorded)))
    assert (decoded, end * 2) == (message, len(recorded))


def test_a_share_fetch_as_java_sends_it() -> None:
    request = ShareFetchRequest(
        group_id="sg5",
        member_id=MEMBER_ID,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52428800,
        max_records=500,
        batch_size=500,
        topics=[ShareFetchTopic(topic_id=TOPIC_ID, partitions=[ShareFetchPartition()])],
    )
    check(
        request,
        2,
        "04736735176434506d41584951524b43557743472d2d454a35735100000000000001f40000000103200000"
        "000001f4000001f400000236d771bf53024af5b64bcd75c8474bcb02000000000100000100",
    )


def test_version_1_of_a_share_fetch_has_neither_mode_nor_renewals() -> None:
    request = ShareFetchRequest(group_id="sg5", member_id="m", share_acquire_mode=1)
    assert decode(ShareFetchRequest, 1, encode(request, 1))[0].share_acquire_mode == 0
    assert len(encode(request, 2)) == len(encode(request, 1)) + 2


def test_an_answer_to_a_share_fetch() -> None:
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=30000,
        responses=[
            ShareFetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=[
                    SharePartitionData(
                        records=memoryview(b""),
                        acquired_records=[
                            AcquiredRecords(first_offset=0, last_offset=27, delivery_count=1)
                        ],
                    )
                ],
            )
        ],
    )
    check(
        response,
        2,
        "00000000000000000075300236d771bf53024af5b64bcd75c8474bcb0200000000000000000000000000000000"
        "00000001020000000000000000000000000000001b000100000001" + "00",
    )


def test_an_acknowledgement_as_java_sends_it() -> None:
    request = ShareAcknowledgeRequest(
        group_id="sg5",
        member_id=MEMBER_ID,
        share_session_epoch=-1,
        topics=[
            ShareAcknowledgeTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    ShareAcknowledgePartition(
                        acknowledgement_batches=[
                            AcknowledgementBatch(
                                first_offset=0, last_offset=2, acknowledge_types=[1]
                            ),
                            AcknowledgementBatch(
                                first_offset=27, last_offset=27, acknowledge_types=[0]
                            ),
                        ]
                    )
                ],
            )
        ],
    )
    check(
        request,
        2,
        "04736735176434506d41584951524b43557743472d2d454a357351ffffffff000236d771bf53024af5b64bcd75"
        "c8474bcb02000000000300000000000000000000000000000002020100000000000000001b0000000000000"
        "01b020000000000",
    )


def test_an_answer_to_an_acknowledgement() -> None:
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=30000,
        responses=[
            ShareAcknowledgeTopicResponse(
                topic_id=TOPIC_ID, partitions=[ShareAcknowledgePartitionData()]
            )
        ],
    )
    check(
        response,
        2,
        "00000000000000000075300236d771bf53024af5b64bcd75c8474bcb020000000000000000000000000000000000"
        "000100",
    )
