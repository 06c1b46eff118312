"""The names that members give themselves."""

from __future__ import annotations

import base64
import random
import uuid

from kraftrio.clients.heartbeat_member.member_id import new_member_id


def test_ids_are_random_uuids_in_kafkas_writing() -> None:
    """22 characters of URL-safe Base64, a version 4 UUID; the generator makes each another."""
    rng = random.Random(1)
    ids = {new_member_id(rng) for _ in range(100)}
    assert len(ids) == 100
    for member_id in ids:
        assert len(member_id) == 22
        assert uuid.UUID(bytes=base64.urlsafe_b64decode(member_id + "==")).version == 4
