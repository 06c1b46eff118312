"""Whom a node knows: its metadata's users, and itself while it can have no metadata."""

from __future__ import annotations

import base64

import pytest

from kraftrio.base.secret import Secret
from kraftrio.broker.security.sasl.exchange import AuthenticatedUser, LoginFailed
from kraftrio.broker.security.sasl.metadata_users import MetadataUsers
from kraftrio.broker.security.sasl.scram import ScramExchange
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.scram_image import ScramUser, credential_record
from kraftrio.kraft_meta.metadata.security_records import (
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
)
from kraftrio.kraft_meta.metadata.token_image import DelegationToken, token_hmac
from kraftrio.wire.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from tests.unit.broker.security.sasl.scram_client import ScramTestClient

SHA_256 = ScramMechanism.SCRAM_SHA_256


def image_with(user: str, password: str) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    salted = salted_password(SHA_256, password, b"salt", 4096)
    credential = credential_of(SHA_256, salted, b"salt", 4096)
    delta.replay(credential_record(ScramUser(user, SHA_256), credential))
    return delta.apply(1, 1)


def without(image: MetadataImage, user: str) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay(RemoveUserScramCredentialRecord(user, SHA_256))
    return delta.apply(image.offset + 1, 1)


def is_let_in(users: MetadataUsers, user: str, password: str) -> bool:
    exchange = ScramExchange(SHA_256, users, lambda: "n")
    client = ScramTestClient(SHA_256, user, password)
    try:
        exchange.evaluate(client.final(exchange.evaluate(client.first(), 0)), 0)
    except LoginFailed:
        return False
    return exchange.login is not None


def test_the_newest_metadata_counts() -> None:
    users = MetadataUsers(lambda size: b"s" * size)
    assert not is_let_in(users, "alice", "one")
    image = image_with("alice", "one")
    users.on_metadata(image, is_current=True)
    assert is_let_in(users, "alice", "one")
    users.on_metadata(image_with("alice", "two"), is_current=True)
    assert not is_let_in(users, "alice", "one") and is_let_in(users, "alice", "two")
    users.on_metadata(without(image, "alice"), is_current=True)
    assert not is_let_in(users, "alice", "one")


def test_a_credential_deleted_during_a_login_is_refused() -> None:
    users = MetadataUsers(lambda size: b"s" * size)
    image = image_with("alice", "one")
    users.on_metadata(image, is_current=True)
    exchange = ScramExchange(SHA_256, users, lambda: "n")
    client = ScramTestClient(SHA_256, "alice", "one")
    final = client.final(exchange.evaluate(client.first(), 0))
    users.on_metadata(without(image, "alice"), is_current=True)
    with pytest.raises(LoginFailed):
        exchange.evaluate(final, 0)
    assert exchange.login is None


def test_a_node_knows_itself_until_it_has_metadata() -> None:
    """A new cluster, or one of which all nodes start at once, has no metadata to ask."""
    users = MetadataUsers(lambda size: b"s" * size)
    users.add_own_credential(SHA_256, "node", Secret("own"))
    assert is_let_in(users, "node", "own") and not is_let_in(users, "node", "other")
    old = image_with("alice", "one")
    users.on_metadata(old, is_current=False)  # a snapshot, say
    assert is_let_in(users, "node", "own") and is_let_in(users, "alice", "one")
    users.on_metadata(old, is_current=True)
    assert not is_let_in(users, "node", "own"), "it is not a user of the cluster"
    users.on_metadata(old, is_current=False)
    assert not is_let_in(users, "node", "own"), "what was known once is not forgotten"


def test_the_metadata_comes_before_what_a_node_knows_of_itself() -> None:
    users = MetadataUsers(lambda size: b"s" * size)
    users.add_own_credential(SHA_256, "node", Secret("old"))
    users.on_metadata(image_with("node", "new"), is_current=False)
    assert is_let_in(users, "node", "new") and not is_let_in(users, "node", "old")


def test_a_new_cluster_has_itself_until_its_first_users_are_committed() -> None:
    """Nodes that could not log in to their leader would never commit those."""
    users = MetadataUsers(lambda size: b"s" * size)
    users.add_own_credential(SHA_256, "node", Secret("own"))
    users.on_metadata(MetadataImage(), is_current=True)
    assert users.credential(SHA_256, "node") is not None
    users.on_metadata(image_with("alice", "two"), is_current=True)
    assert users.credential(SHA_256, "node") is None, "the metadata does not name it"


def test_a_delegation_token_stands_for_its_owner_until_it_expires() -> None:
    """Its password is its HMAC in base64, as the tools print it."""
    key = Secret("key")
    users = MetadataUsers(lambda size: b"s" * size, key)
    token = DelegationToken("id", "User:alice", "User:root", (), 0, 9000, 5000)
    delta = MetadataDelta(MetadataImage())
    delta.replay(token.to_record())
    image = delta.apply(1, 1)
    users.on_metadata(image, is_current=True)
    password = base64.b64encode(token_hmac(key, "id")).decode()
    client = ScramTestClient(SHA_256, "id", password, {"tokenauth": "true"})
    exchange = ScramExchange(SHA_256, users, lambda: "n")
    exchange.evaluate(client.final(exchange.evaluate(client.first(), 5000)), 5000)
    assert exchange.login == AuthenticatedUser("alice", 5000, is_by_token=True)
    assert users.token(SHA_256, "id", 5001) is None
    assert users.token(SHA_256, "other", 0) is None
    delta = MetadataDelta(image)
    delta.replay(RemoveDelegationTokenRecord("id"))
    users.on_metadata(delta.apply(2, 1), is_current=True)
    assert users.token(SHA_256, "id", 0) is None
