"""SCRAM credentials as a part of the image: what records make of them, and what is shown."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.scram_image import ScramChanges, ScramUser, credential_record
from kraftrio.kraft_meta.metadata.security_records import RemoveUserScramCredentialRecord
from kraftrio.wire.sasl.scram_keys import ScramCredential

ALICE, BOB = ScramUser("alice", 1), ScramUser("bob", 2)
FIRST = ScramCredential(b"salt", b"stored", b"server", 4096)
SECOND = ScramCredential(b"pepper", b"stored2", b"server2", 8192)


def image_with(**users: ScramCredential) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for name, credential in users.items():
        delta.replay(credential_record(ScramUser(name, 1), credential))
    return delta.apply(len(users), 1)


def test_credentials_come_change_and_go_with_their_records() -> None:
    old = image_with(alice=FIRST)
    delta = MetadataDelta(old)
    delta.replay(credential_record(ALICE, SECOND))
    delta.replay(credential_record(BOB, FIRST))
    between = delta.apply(2, 1)
    assert dict(between.scram_credentials) == {ALICE: SECOND, BOB: FIRST}
    assert dict(old.scram_credentials) == {ALICE: FIRST}
    delta = MetadataDelta(between)
    delta.replay(RemoveUserScramCredentialRecord("alice", 1))
    assert delta.part(ScramChanges).changed == {ALICE: None}
    assert dict(delta.apply(3, 1).scram_credentials) == {BOB: FIRST}


def test_an_image_and_its_records_are_one() -> None:
    old = image_with(bob=SECOND, alice=FIRST)
    delta = MetadataDelta(MetadataImage())
    for record in old.to_records():
        delta.replay(record)
    assert delta.apply(old.offset, old.epoch) == old


def test_a_removal_of_what_is_not_there_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        MetadataDelta(image_with(alice=FIRST)).replay(RemoveUserScramCredentialRecord("alice", 2))


def test_no_key_is_shown() -> None:
    """Neither by a record, nor by an image or its changes."""
    image = image_with(alice=FIRST)
    shown = repr(image) + repr(list(image.to_records())) + repr(MetadataDelta.full(image))
    for secret in (b"salt", b"stored", b"server"):
        assert repr(secret)[2:-1] not in shown.replace("stored_key", "").replace("server_key", "")
