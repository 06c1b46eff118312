"""Client quotas as a part of the image: what records make of them."""

from __future__ import annotations

from immutables import Map

from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.quota_image import QuotaChanges, quota_entity
from kraftrio.kraft_meta.metadata.records import decode_record, encode_record
from kraftrio.kraft_meta.metadata.security_records import ClientQuotaRecord

ANY_USER = quota_entity({"user": None})
PAIR = quota_entity({"user": "a", "client-id": "b"})
ADDRESS = quota_entity({"ip": "127.0.0.1"})


def image_after(*records: ClientQuotaRecord) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    return delta.apply(len(records), 1)


FULL = (
    ClientQuotaRecord(PAIR, "producer_byte_rate", 1000.0),
    ClientQuotaRecord(PAIR, "request_percentage", 12.5),
    ClientQuotaRecord(ANY_USER, "consumer_byte_rate", 2000.0),
    ClientQuotaRecord(ADDRESS, "connection_creation_rate", 5.0),
)


def test_an_entity_is_the_same_in_whatever_order_it_is_named() -> None:
    assert quota_entity({"client-id": "b", "user": "a"}) == PAIR
    assert ANY_USER == (("user", ""),)


def test_values_come_and_go_with_their_records() -> None:
    """An entity without a value left is gone; the image before a delta stays as it was."""
    image = image_after(*FULL)
    delta = MetadataDelta(image)
    delta.replay(ClientQuotaRecord(PAIR, "producer_byte_rate", 0.0, remove=True))
    delta.replay(ClientQuotaRecord(ANY_USER, "consumer_byte_rate", 0.0, remove=True))
    delta.replay(ClientQuotaRecord(ANY_USER, "no such key", 0.0, remove=True))
    delta.replay(ClientQuotaRecord(ADDRESS, "connection_creation_rate", 6.0))
    assert delta.part(QuotaChanges).changed == {
        PAIR: Map(request_percentage=12.5),
        ANY_USER: None,
        ADDRESS: Map(connection_creation_rate=6.0),
    }
    after = delta.apply(9, 1)
    assert after.client_quotas == Map(
        {PAIR: Map(request_percentage=12.5), ADDRESS: Map(connection_creation_rate=6.0)}
    )
    assert image.client_quotas == image_after(*FULL).client_quotas


def test_an_image_and_its_records_are_one() -> None:
    image = image_after(*FULL)
    records = [decode_record(encode_record(record)) for record in image.to_records()]
    again = image_after(*(one for one in records if isinstance(one, ClientQuotaRecord)))
    assert again.client_quotas == image.client_quotas
    assert len(records) == len(FULL)
    changes = MetadataDelta.between(MetadataImage(), image).part(QuotaChanges)
    assert changes.apply() == image.client_quotas
