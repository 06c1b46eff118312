"""What a member of a classic group has to do next, each step with how its end is reported.

Called by: `membership`, which says what is next; `classic_member`, which does it.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.wire.messages.groups import JoinGroupRequest, SyncGroupRequest
from kraftrio.wire.primitives import TopicPartition

Partitions = frozenset[TopicPartition]


class WaitUntil(NamedTuple):
    """Nothing; unless something happens, ask again at that time (None: never)."""

    until_ms: float | None


class Prepare(NamedTuple):
    """Commit if that is automatic, give these up, then report `prepared`."""

    revoked: Partitions
    lost: bool


class Join(NamedTuple):
    """Send this, then report `joined` or `request_failed`."""

    request: JoinGroupRequest


class ShareOut(NamedTuple):
    """Find out how many partitions these topics have, then report `shared`."""

    topics: frozenset[str]


class Sync(NamedTuple):
    """Send this, then report `synced` or `request_failed`."""

    request: SyncGroupRequest


class Complete(NamedTuple):
    """Give up `revoked`, own `assigned` of which `added` is new, then report `completed`."""

    assigned: Partitions
    added: Partitions
    revoked: Partitions


Step = WaitUntil | Prepare | Join | ShareOut | Sync | Complete
