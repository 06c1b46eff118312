"""Delegation tokens as a part of the image."""

from __future__ import annotations

import pytest

from kraftrio.base.secret import Secret
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import decode_record, encode_record
from kraftrio.kraft_meta.metadata.security_records import RemoveDelegationTokenRecord
from kraftrio.kraft_meta.metadata.token_image import DelegationToken, token_hmac

TOKEN = DelegationToken("id", "User:alice", "User:root", ("User:bob", "User:carol"), 1, 100, 50)


def image_with(*tokens: DelegationToken) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for token in tokens:
        delta.replay(decode_record(encode_record(token.to_record())))
    return delta.apply(len(tokens), 1)


def test_tokens_come_change_and_go_with_their_records() -> None:
    image = image_with(TOKEN)
    assert dict(image.delegation_tokens) == {"id": TOKEN}
    delta = MetadataDelta(image)
    delta.replay(TOKEN._replace(expiry_ms=80).to_record())
    image = delta.apply(2, 1)
    assert image.delegation_tokens["id"].expiry_ms == 80
    delta = MetadataDelta(image)
    delta.replay(RemoveDelegationTokenRecord("id"))
    assert not delta.apply(3, 1).delegation_tokens


def test_an_image_and_its_records_are_one() -> None:
    image = image_with(TOKEN._replace(token_id="b"), TOKEN)
    delta = MetadataDelta(MetadataImage())
    for record in image.to_records():
        delta.replay(record)
    assert delta.apply(image.offset, image.epoch) == image


@pytest.mark.parametrize(("now_ms", "expired"), [(50, False), (51, True), (101, True)])
def test_when_a_token_is_expired(now_ms: int, expired: bool) -> None:
    assert TOKEN.is_expired(now_ms) is expired


def test_who_may_renew_a_token() -> None:
    names = ("alice", "bob", "carol", "root", "eve")
    may = [name for name in names if TOKEN.may_be_renewed_by(f"User:{name}")]
    assert may == ["alice", "bob", "carol"]


def test_an_hmac_is_of_the_id_and_the_secret() -> None:
    """As Kafka's: HMAC-SHA-512, so that tokens of a cluster that is moved here stay valid."""
    made = token_hmac(Secret("secret"), "3v1Q8aYdQ6GNcGD-q8ATTw")
    assert len(made) == 64
    assert made != token_hmac(Secret("Secret"), "3v1Q8aYdQ6GNcGD-q8ATTw")
    assert made != token_hmac(Secret("secret"), "3v1Q8aYdQ6GNcGD-q8ATTx")
