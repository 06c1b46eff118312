"""ACLs as a part of the image: what records make of them, and which ones a filter means."""

from __future__ import annotations

import pytest
from immutables import Map

from kraftrio.kraft_meta.metadata.acl_image import Acl, AclChanges, AclFilter
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.security_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP = 2, 3
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3


def acl(
    name: str = "t",
    pattern: int = LITERAL,
    principal: str = "User:a",
    *,
    kind: int = TOPIC,
    host: str = "*",
    operation: int = READ,
    permission: int = ALLOW,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def made(one: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(one.id, *one)


def image_with(*acls: Acl) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for one in acls:
        delta.replay(made(one))
    return delta.apply(len(acls), 1)


def test_acls_come_and_go_with_their_records() -> None:
    """A delta names what came and went; the image before it stays as it was."""
    first, second = acl("a"), acl("b")
    old = image_with(first)
    delta = MetadataDelta(old)
    delta.replay(made(second))
    delta.replay(RemoveAccessControlEntryRecord(first.id))
    new = delta.apply(9, 1)
    assert delta.part(AclChanges).changed == {second.id: second, first.id: None}
    assert not delta.is_empty
    assert (list(old.acls.values()), list(new.acls.values())) == ([first], [second])


def test_an_image_and_its_records_are_one() -> None:
    """A snapshot has all ACLs; what changed between two images is found again after one."""
    old = image_with(acl("a"), acl("b", PREFIXED), acl("c", kind=GROUP, permission=DENY))
    delta = MetadataDelta(MetadataImage())
    for record in old.to_records():
        delta.replay(record)
    assert delta.apply(old.offset, old.epoch) == old
    new = image_with(acl("b", PREFIXED), acl("d"))
    between = MetadataDelta.between(old, new)
    assert between.part(AclChanges).changed == {
        acl("a").id: None,
        acl("c", kind=GROUP, permission=DENY).id: None,
        acl("d").id: acl("d"),
    }
    assert between.apply(new.offset, new.epoch) == new
    assert MetadataDelta.between(new, new).is_empty


def test_impossible_records_are_our_bugs() -> None:
    """One ACL is removed once, and has the id of what it says."""
    with pytest.raises(AssertionError):
        MetadataDelta(image_with(acl("a"))).replay(RemoveAccessControlEntryRecord(acl("b").id))
    with pytest.raises(AssertionError):
        MetadataDelta(MetadataImage()).replay(AccessControlEntryRecord(b"x" * 16, *acl("a")))


def test_every_part_of_an_acl_is_in_its_id() -> None:
    """Or two ACLs would be one."""
    changes = [
        acl("u"),
        acl("t", PREFIXED),
        acl(kind=GROUP),
        acl(principal="User:b"),
        acl(host="10.0.0.1"),
        acl(operation=WRITE),
        acl(permission=DENY),
    ]
    assert len({one.id for one in [acl(), *changes]}) == len(changes) + 1
    assert acl().id == bytes.fromhex("2935f2fe4e883ccd1d40caf456ea9f11")  # it lies on disks


NAMED = [
    acl("orders"),
    acl("orders", PREFIXED),
    acl("ord", PREFIXED),
    acl("*"),
    acl("other"),
    acl("orders", kind=GROUP),
]


@pytest.mark.parametrize(
    ("kind", "name", "pattern", "expected"),
    [
        (ANY, None, ANY, [0, 1, 2, 3, 4, 5]),
        (TOPIC, None, ANY, [0, 1, 2, 3, 4]),
        (TOPIC, None, LITERAL, [0, 3, 4]),
        (TOPIC, None, MATCH, [0, 1, 2, 3, 4]),
        (TOPIC, "orders", ANY, [0, 1]),
        (TOPIC, "orders", LITERAL, [0]),
        (TOPIC, "orders", PREFIXED, [1]),
        (TOPIC, "orders", MATCH, [0, 1, 2, 3]),
        (ANY, "orders", MATCH, [0, 1, 2, 3, 5]),
        (TOPIC, "ord", MATCH, [2, 3]),
        (TOPIC, "*", MATCH, [3]),
        (TOPIC, "*", LITERAL, [3]),
        (TOPIC, "nothing", ANY, []),
    ],
)
def test_which_patterns_a_filter_means(
    kind: int, name: str | None, pattern: int, expected: list[int]
) -> None:
    """As Kafka's ResourcePatternFilter, KIP-290."""
    wanted = AclFilter(kind, name, pattern, None, None, ANY, ANY)
    assert [index for index, one in enumerate(NAMED) if wanted.matches(one)] == expected


def test_which_entries_a_filter_means() -> None:
    """Principal and host by their exact text; ANY and None are everything."""
    entries = [acl(), acl(principal="User:*"), acl(host="h"), acl(operation=2), acl(permission=2)]

    def matching(principal: str | None, host: str | None, operation: int, kind: int) -> list[int]:
        wanted = AclFilter(ANY, None, ANY, principal, host, operation, kind)
        return [index for index, one in enumerate(entries) if wanted.matches(one)]

    assert matching(None, None, ANY, ANY) == [0, 1, 2, 3, 4]
    assert matching("User:a", None, ANY, ANY) == [0, 2, 3, 4]
    assert matching("User:*", None, ANY, ANY) == [1]
    assert matching(None, "h", ANY, ANY) == [2]
    assert matching(None, "*", READ, ANY) == [0, 1, 4]
    assert matching(None, None, 2, ANY) == [3]
    assert matching(None, None, ANY, DENY) == [4]


def test_a_filter_of_one_acl_is_not_a_search() -> None:
    """What names every part finds its ACL by the id; a search looks at all of them."""
    acls = Map({one.id: one for one in NAMED})
    assert list(AclFilter(*acl("other")).among(acls)) == [acl("other")]
    assert list(AclFilter(*acl("nothing")).among(acls)) == [None]
    found = list(AclFilter(TOPIC, "orders", ANY, None, None, ANY, ANY).among(acls))
    assert len(found) == len(NAMED)
    assert {one for one in found if one is not None} == {acl("orders"), acl("orders", PREFIXED)}
