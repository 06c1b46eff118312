"""Metadata records: bytes and back, and what is refused."""

from __future__ import annotations

import msgpack
import pytest

from kraftrio.kraft_meta.metadata.records import (
    RECORD_CLASSES,
    BrokerRegistrationChangeRecord,
    ClusterIdRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownRecordError,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from kraftrio.kraft_meta.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

TOPIC_ID = bytes(range(16))

EXAMPLES: list[MetadataRecord] = [
    RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=TOPIC_ID,
        broker_epoch=2**40,
        endpoints=(Endpoint("PLAINTEXT", "h", 9092, 0), Endpoint("TLS", "h", 9093, 1)),
        features=(FeatureRange("metadata.version", 7, 30),),
        rack="r",
        fenced=False,
        in_controlled_shutdown=True,
        log_dirs=(TOPIC_ID,),
    ),
    UnregisterBrokerRecord(1, 5),
    TopicRecord("töpic", TOPIC_ID),
    PartitionRecord(TOPIC_ID, 3, (1, 2), (2,), 2, 4, 5, 1, (2,), (1,)),
    PartitionRecord(TOPIC_ID, 3, (1, 2), (2,), 2, directories=(TOPIC_ID, bytes(16))),
    ConfigRecord(2, "t", "retention.ms", "1"),
    ConfigRecord(2, "t", "retention.ms", None),
    PartitionChangeRecord(TOPIC_ID, 0),
    PartitionChangeRecord(TOPIC_ID, 0, (1,), -1, (1, 2), (), (2,), 0),
    PartitionChangeRecord(TOPIC_ID, 0, directories=(TOPIC_ID, bytes(16))),
    RemoveTopicRecord(TOPIC_ID),
    FeatureLevelRecord("metadata.version", 30),
    ProducerIdsRecord(1, 2, 1000),
    BrokerRegistrationChangeRecord(1, 5, fenced=True),
    BrokerRegistrationChangeRecord(1, 5, in_controlled_shutdown=True),
    BrokerRegistrationChangeRecord(1, 5, log_dirs=(TOPIC_ID,)),
    NoOpRecord(),
    ClusterIdRecord("id"),
    AccessControlEntryRecord(TOPIC_ID, 2, "töpic", 3, "User:a", "*", 3, 3),
    RemoveAccessControlEntryRecord(TOPIC_ID),
    UserScramCredentialRecord("älice", 2, b"salt", b"stored", b"server", 4096),
    RemoveUserScramCredentialRecord("älice", 2),
    DelegationTokenRecord("User:a", "User:b", ("User:c",), 1, 2, 3, "id"),
    RemoveDelegationTokenRecord("id"),
    ClientQuotaRecord((("client-id", ""), ("user", "ä")), "producer_byte_rate", 1.5),
    ClientQuotaRecord((("ip", "::1"),), "connection_creation_rate", 0.0, remove=True),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=repr)
def test_bytes_and_back(record: MetadataRecord) -> None:
    """Decoding gives an equal record of the same class, with its named tuples."""
    decoded = decode_record(encode_record(record))
    assert decoded == record
    assert type(decoded) is type(record)
    if isinstance(decoded, RegisterBrokerRecord):
        assert decoded.endpoints[1].port == 9093
        assert decoded.features[0].max_supported_version == 30


def test_every_class_has_an_example_and_its_own_type() -> None:
    """Type ids are the log's alphabet: none is used twice."""
    assert {type(record) for record in EXAMPLES} == set(RECORD_CLASSES)
    assert len({cls.TYPE_ID for cls in RECORD_CLASSES}) == len(RECORD_CLASSES)


def test_the_bytes_are_what_is_on_disks() -> None:
    """This must never change: [type, version, fields in order]."""
    data = encode_record(ProducerIdsRecord(1, 2, 1000))
    assert msgpack.unpackb(data) == [15, 0, 1, 2, 1000]
    assert data == bytes.fromhex("95 0f 00 01 02 cd03e8")


def test_fields_that_an_older_writer_did_not_know_have_their_defaults() -> None:
    """Rule 1 of the module."""
    assert decode_record(msgpack.packb([17, 0, 1, 5])) == BrokerRegistrationChangeRecord(1, 5)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        b"text",
        msgpack.packb([]),
        msgpack.packb([2]),
        msgpack.packb({"type": 2}),
        msgpack.packb([999, 0]),
        msgpack.packb([2, 1, "t", TOPIC_ID]),
        msgpack.packb([2, 0, "t"]),
        msgpack.packb([2, 0, "t", TOPIC_ID, 5]),
        msgpack.packb([0, 0, 1, TOPIC_ID, 1, [["P"]], [], None]),
    ],
)
def test_what_is_not_known_is_refused(value: bytes) -> None:
    """Never skipped: an image without it would differ from the others'."""
    with pytest.raises(UnknownRecordError):
        decode_record(value)
