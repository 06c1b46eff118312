"""Which topic names are legal, which ones collide, and which topics are Kafka's own:
`check_topic_name`, `find_collision`, `INTERNAL_TOPICS`.

Rules: as Kafka's. 1 to 249 characters of ASCII letters, digits, '.', '_' and '-', not "." or "..".
'.' and '_' are one character in the names of metrics, so names that differ in nothing else collide.

Called by: the controller, and by what creates topics without being asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kraftrio.wire.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH: Final = 249

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION with Kafka's reason unless the name is legal."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif _LEGAL.match(name) is None:
        reason = (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def collision_key(name: str) -> str:
    """Return what two colliding names have in common."""
    return name.replace(".", "_")


def has_collision_chars(name: str) -> bool:
    return "." in name or "_" in name


def find_collision(name: str, existing: Iterable[str]) -> str | None:
    """Return the first of the existing names (by order of names) that collides with `name`."""
    if not has_collision_chars(name):
        return None
    key = collision_key(name)
    found = [other for other in existing if other != name and collision_key(other) == key]
    return min(found, default=None)
