"""The authorizer follows the metadata, and many ACLs are taken out of the collector's sight."""

from __future__ import annotations

from kraftrio.broker.node.security.acl_updates import FROZEN_AT_ONCE, AclUpdates
from kraftrio.broker.security.acls.standard_authorizer import StandardAuthorizer
from kraftrio.broker.security.authorizer import Resource
from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.kraft_meta.metadata.acl_image import Acl
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.security_records import AccessControlEntryRecord
from kraftrio.wire.protocol.acls import AclOperation, ResourceType

ALICE = KafkaPrincipal("User", "alice")
_LITERAL, _READ, _ALLOW = 3, 3, 3


def test_it_decides_by_the_newest_image_and_freezes_many_acls() -> None:
    frozen: list[int] = []
    authorizer = StandardAuthorizer()
    updates = AclUpdates(authorizer, lambda: frozen.append(len(image.acls)))
    image = MetadataImage()

    def may_read(topic: str) -> bool:
        resource = Resource(ResourceType.TOPIC, topic)
        return authorizer.authorize(ALICE, "h", AclOperation.READ, resource)

    updates.on_metadata(MetadataDelta(image), image)
    assert not may_read("t0")
    batch = FROZEN_AT_ONCE // 2
    for first in (0, batch, 2 * batch):
        delta = MetadataDelta(image)
        for number in range(first, first + batch):
            acl = Acl(ResourceType.TOPIC, f"t{number}", _LITERAL, "User:alice", "*", _READ, _ALLOW)
            delta.replay(AccessControlEntryRecord(acl.id, *acl))
        image = delta.apply(first, 1)
        updates.on_metadata(delta, image)
        assert may_read(f"t{first}")
    assert frozen == [2 * batch]
