"""Deliberate breaches of what revoked rights promise: each must be noticed.

Owns: `RIGHTS_MUTATIONS`, name -> (patches, likely options). Called by: `mutations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraftrio.broker.api.fetch.reads import OngoingFetch
from kraftrio.broker.security.acls.standard_authorizer import StandardAuthorizer
from kraftrio.broker.security.sasl.metadata_users import MetadataUsers
from kraftrio.kraft_meta.metadata.acl_image import AclChanges
from kraftrio.kraft_meta.metadata.image import MetadataImage

Patch = tuple[Any, str, Any]


def _revoked_rights_stay() -> list[Patch]:
    """An ACL that is gone goes on counting."""
    original = StandardAuthorizer.update

    def update(self: StandardAuthorizer, changes: AclChanges) -> None:
        changes.changed = {key: acl for key, acl in changes.changed.items() if acl is not None}
        original(self, changes)

    return [(StandardAuthorizer, "update", update)]


def _decisions_are_kept() -> list[Patch]:
    """What was decided once stands, whatever ACLs come."""
    original = StandardAuthorizer.update

    def update(self: StandardAuthorizer, changes: AclChanges) -> None:
        decisions = dict(self._decisions)
        original(self, changes)
        self._decisions.update(decisions)

    return [(StandardAuthorizer, "update", update)]


def _fetch_is_checked_when_it_comes() -> list[Patch]:
    """A fetch that waits keeps the right that it came with."""
    original = OngoingFetch.check_consumer
    seen: dict[tuple[int, str], OngoingFetch] = {}  # held, so that no other one has its id

    def check_consumer(self: OngoingFetch, topic: str) -> None:
        if (id(self), topic) not in seen:
            seen[id(self), topic] = self
            original(self, topic)

    return [(OngoingFetch, "check_consumer", check_consumer)]


def _deleted_users_stay() -> list[Patch]:
    """A node lets in whom its metadata has removed."""
    original = MetadataUsers.on_metadata

    def on_metadata(self: MetadataUsers, image: MetadataImage, *, is_current: bool) -> None:
        before = self._image.scram_credentials
        original(self, image, is_current=is_current)
        self._own.update(before.items())

    return [(MetadataUsers, "on_metadata", on_metadata)]


_GUESTS: Mapping[str, Any] = {
    "secured": True,
    "nodes": 3,
    "faults": (),
    "duration_s": 20.0,
    "idempotent_producers": 1,
    "plain_producers": 0,
    "weak_producers": 0,
    "readers": 0,
    "groups": 0,
    "admin_gap_s": 1e9,
    "library": (),
    "uses": (),
    "transactions": None,
}

RIGHTS_MUTATIONS: dict[str, tuple[Callable[[], list[Patch]], Mapping[str, Any]]] = {
    "revoked-rights-stay": (_revoked_rights_stay, _GUESTS),
    "decisions-are-kept": (_decisions_are_kept, _GUESTS),
    "fetch-is-checked-when-it-comes": (_fetch_is_checked_when_it_comes, _GUESTS),
    "deleted-users-stay": (_deleted_users_stay, _GUESTS),
}
