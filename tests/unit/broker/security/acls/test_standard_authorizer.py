"""What ACLs allow: each rule by an example, all of them against a slow model, and at what cost."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Sequence

import pytest

from kraftrio.broker.security.acls.standard_authorizer import StandardAuthorizer
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.kraft_meta.metadata.acl_image import Acl, AclChanges
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.security_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from kraftrio.wire.protocol.acls import AclPermissionType, PatternType
from tests.unit.broker.security.acls.model import may

ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
HOST = "10.0.0.1"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALL = AclOperation.ALL


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: AclPermissionType = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(int(kind), name, int(pattern), principal, host, int(operation), int(permission))


class Acls:
    """A cluster's ACLs and the authorizer that follows them."""

    def __init__(self, *acls: Acl, allow_everyone: bool = False) -> None:
        self.authorizer = StandardAuthorizer(
            [KafkaPrincipal("User", "root")], allow_everyone=allow_everyone
        )
        self.image = MetadataImage()
        self.change(add=acls)

    def change(self, *, add: Collection[Acl] = (), remove: Collection[Acl] = ()) -> None:
        delta = MetadataDelta(self.image)
        for one in remove:
            delta.replay(RemoveAccessControlEntryRecord(one.id))
        for one in add:
            delta.replay(AccessControlEntryRecord(one.id, *one))
        self.image = delta.apply(self.image.offset + 1, 1)
        self.authorizer.update(delta.part(AclChanges))

    def may(
        self,
        operation: AclOperation,
        topic: str | None,
        principal: KafkaPrincipal = ALICE,
        host: str = HOST,
    ) -> bool:
        resource = Resource(ResourceType.TOPIC, topic)
        return self.authorizer.authorize(principal, host, operation, resource)


def test_nothing_is_allowed_that_no_acl_allows() -> None:
    acls = Acls(acl("t"))
    assert acls.may(READ, "t")
    assert not acls.may(WRITE, "t")
    assert not acls.may(READ, "u")
    assert not acls.may(READ, "t", BOB)
    assert not acls.authorizer.authorize(ALICE, HOST, READ, Resource(ResourceType.GROUP, "t"))


def test_before_the_metadata_is_known_super_users_may_do_everything_and_nobody_else_anything() -> (
    None
):
    """Brokers join by it, and nothing is open for a moment."""
    authorizer = StandardAuthorizer([BOB], allow_everyone=True)
    topic = Resource(ResourceType.TOPIC, "t")
    assert authorizer.authorize(BOB, HOST, AclOperation.CLUSTER_ACTION, CLUSTER)
    assert not authorizer.authorize(ALICE, HOST, READ, topic)
    authorizer.update(MetadataDelta(MetadataImage()).part(AclChanges))
    assert authorizer.authorize(ALICE, HOST, READ, topic)


def test_a_super_user_may_do_what_is_denied_to_everyone() -> None:
    acls = Acls(acl("*", ALL, DENY, principal="User:*"))
    assert acls.may(WRITE, "t", KafkaPrincipal("User", "root"))
    assert acls.may(WRITE, None, KafkaPrincipal("User", "root"))
    assert not acls.may(WRITE, "t", KafkaPrincipal("Group", "root"))


@pytest.mark.parametrize(
    ("name", "pattern", "topic", "expected"),
    [
        ("t", LITERAL, "t", True),
        ("t", LITERAL, "tt", False),
        ("*", LITERAL, "t", True),
        ("*", LITERAL, "*", True),
        ("*", PREFIXED, "t", False),
        ("*", PREFIXED, "*t", True),
        ("ab", PREFIXED, "ab", True),
        ("ab", PREFIXED, "abc", True),
        ("ab", PREFIXED, "a", False),
        ("ab", PREFIXED, "ba", False),
    ],
)
def test_which_resources_a_pattern_stands_for(
    name: str, pattern: PatternType, topic: str, expected: bool
) -> None:
    assert Acls(acl(name, pattern=pattern)).may(READ, topic) is expected


def test_principals_and_hosts() -> None:
    """By their exact text, or all of them."""
    acls = Acls(acl("a", host=HOST), acl("b", principal="User:*"), acl("c", host="10.0.0.2"))
    assert acls.may(READ, "a")
    assert not acls.may(READ, "a", host="10.0.0.2")
    assert acls.may(READ, "b", BOB)
    assert not acls.may(READ, "c")


@pytest.mark.parametrize("denied_by", ["t", "*", "prefix"])
def test_one_acl_that_denies_outweighs_all_that_allow(denied_by: str) -> None:
    """Whichever pattern it has."""
    name, pattern = ("", PREFIXED) if denied_by == "prefix" else (denied_by, LITERAL)
    denial = acl(name or "t", READ, DENY, pattern=pattern)
    acls = Acls(acl("t"), acl("*", ALL), acl("t", pattern=PREFIXED), denial)
    assert not acls.may(READ, "t")
    assert acls.may(WRITE, "t")
    acls.change(remove=[denial])
    assert acls.may(READ, "t")


def test_what_is_implied() -> None:
    """Only by what is allowed: a denial to read leaves the right to describe."""
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, ALL):
        assert Acls(acl("t", operation)).may(DESCRIBE, "t")
    for operation in (AclOperation.CREATE, AclOperation.ALTER_CONFIGS):
        assert not Acls(acl("t", operation)).may(DESCRIBE, "t")
    assert Acls(acl("t", AclOperation.ALTER_CONFIGS)).may(AclOperation.DESCRIBE_CONFIGS, "t")
    assert not Acls(acl("t", AclOperation.ALTER)).may(AclOperation.DESCRIBE_CONFIGS, "t")
    acls = Acls(acl("t", WRITE), acl("t", READ, DENY))
    assert acls.may(DESCRIBE, "t")
    assert not Acls(acl("t", WRITE), acl("t", ALL, DENY)).may(DESCRIBE, "t")


def test_everyone_may_where_no_acl_counts_for_the_resource() -> None:
    """An ACL for another principal is one, too."""
    acls = Acls(acl("t"), acl("ab", pattern=PREFIXED), allow_everyone=True)
    assert acls.may(WRITE, "u", BOB)
    assert not acls.may(WRITE, "t", BOB)
    assert not acls.may(READ, "abc", BOB)
    acls.change(remove=[acl("ab", pattern=PREFIXED)])
    assert acls.may(READ, "abc", BOB)


def test_some_resource_of_a_type() -> None:
    """What denies must cover all that allows; nothing is implied."""
    assert Acls(acl("t", WRITE)).may(WRITE, None)
    assert not Acls(acl("t", WRITE)).may(DESCRIBE, None)
    assert not Acls(acl("t", WRITE), acl("t", WRITE, DENY)).may(WRITE, None)
    assert Acls(acl("t", WRITE), acl("u", WRITE, DENY)).may(WRITE, None)
    below = acl("abc", WRITE, pattern=PREFIXED)
    assert not Acls(below, acl("ab", WRITE, DENY, pattern=PREFIXED)).may(WRITE, None)
    assert Acls(below, acl("abcd", ALL, DENY, pattern=PREFIXED)).may(WRITE, None)
    assert not Acls(acl("*", WRITE), acl("*", WRITE, DENY)).may(WRITE, None)


def test_a_change_counts_at_once() -> None:
    """Also for what was decided before."""
    acls = Acls()
    assert not acls.may(READ, "t")
    acls.change(add=[acl("t")])
    assert acls.may(READ, "t")
    acls.change(add=[acl("t", WRITE)])
    acls.change(remove=[acl("t")])
    assert not acls.may(READ, "t")
    assert acls.may(WRITE, "t")


def _random_acl(rng: random.Random) -> Acl:
    return acl(
        rng.choice(["a", "ab", "abc", "b", "*", "hard", "h"]),
        rng.choice(list(AclOperation)[2:13]),
        rng.choice([ALLOW, ALLOW, DENY]),
        pattern=rng.choice([LITERAL, PREFIXED]),
        principal=rng.choice(["User:alice", "User:bob", "User:*"]),
        host=rng.choice([HOST, "*", "other"]),
    )


@pytest.mark.parametrize("seed", range(6))
def test_it_decides_as_the_rules_say(seed: int) -> None:
    """Random ACLs come and go, and every decision is the slow model's."""
    rng = random.Random(seed)
    acls = Acls(allow_everyone=bool(seed % 2))
    held: dict[Acl, None] = {}
    for _ in range(25):
        gone = [one for one in held if rng.random() < 0.3]
        came = [_random_acl(rng) for _ in range(rng.randrange(4))]
        came = [one for one in dict.fromkeys(came) if one not in held]
        acls.change(add=came, remove=gone)
        held = {one: None for one in [*held, *came] if one not in gone}
        for _ in range(60):
            operation = rng.choice(list(AclOperation)[3:])
            principal, host = rng.choice([ALICE, BOB]), rng.choice([HOST, "x"])
            topic = rng.choice(["a", "ab", "abcd", "c", "*", "hardcode", None])
            expected = may(
                held,
                principal,
                host,
                operation,
                Resource(ResourceType.TOPIC, topic),
                allow_everyone=bool(seed % 2),
            )
            assert acls.may(operation, topic, principal, host) is expected, (held, topic)


def test_what_goes_leaves_nothing() -> None:
    """ACLs come and go for as long as a broker runs."""
    rng = random.Random(1)
    acls = Acls()
    held = list(dict.fromkeys(_random_acl(rng) for _ in range(200)))
    acls.change(add=held)
    acls.change(remove=held)
    authorizer = acls.authorizer
    assert not authorizer._rules
    assert not authorizer._patterns
    assert not any(authorizer._prefix_lengths.values())


def _decisions_us(acls: Acls, topics: Sequence[str | None], rounds: int = 3) -> float:
    """The least time of one decision, in microseconds."""
    best = float("inf")
    for _ in range(rounds):
        acls.authorizer._decisions.clear()
        begin = time.perf_counter()
        for topic in topics:
            acls.may(WRITE, topic)
        best = min(best, time.perf_counter() - begin)
    return best / len(topics) * 1e6


def test_a_decision_costs_the_same_whatever_the_number_of_acls() -> None:
    """A search through 10,000 ACLs takes milliseconds."""
    many = [acl(f"topic-{i}", WRITE, principal=f"User:u{i % 100}") for i in range(6000)]
    many += [acl(f"p{i}-", WRITE, pattern=PREFIXED, principal="User:u") for i in range(3000)]
    many += [acl(f"mine-{i}", WRITE) for i in range(1000)]
    acls = Acls(*many)
    topics = [f"mine-{i}" for i in range(200)] + [f"topic-{i}" for i in range(200)]
    assert acls.may(WRITE, "mine-7")
    assert not acls.may(WRITE, "topic-7")
    assert _decisions_us(acls, topics) < 100  # about 8 on a quiet machine
    assert _decisions_us(acls, [None]) < 1000
