"""What requests about access are about, and what a case is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.codec.schema import ARRAY
from kraftrio.wire.protocol.acls import AclOperation, ResourceType
from kraftrio.wire.protocol.api import APIS, ApiKey

ABSENT_ID = b"\x01" * 16

Right: TypeAlias = tuple[ResourceType, AclOperation]
Fields: TypeAlias = dict[str, Any]

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, CREATE, DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
)
ALTER, DESCRIBE, CLUSTER_ACTION = (
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
)
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


@dataclass(frozen=True)
class Things:
    """What one request of one sender is about."""

    name: str
    topic_id: bytes = b""
    hidden_topic_id: bytes = b""

    @property
    def topics(self) -> tuple[str, str, str]:
        """One that its sender has rights on, one that it has none on, and one that is not there."""
        return f"{self.name}-topic", f"{self.name}-hidden-topic", f"{self.name}-absent-topic"

    @property
    def ids(self) -> tuple[bytes, bytes, bytes]:
        """The ids of these."""
        return self.topic_id, self.hidden_topic_id, ABSENT_ID

    @property
    def groups(self) -> tuple[str, str]:
        """One that its sender has rights on, and one that it has none on."""
        return f"{self.name}-group", f"{self.name}-hidden-group"

    @property
    def transactional_ids(self) -> tuple[str, str]:
        """The same of transactional ids."""
        return f"{self.name}-id", f"{self.name}-hidden-id"


@dataclass(frozen=True)
class Case:
    """A request, and the rights that let it in.

    `is_answer_compared`: the answer that it has once it is let in belongs to the case, too.
    """

    key: ApiKey
    rights: tuple[Right, ...]
    fields: Callable[[Things], Fields]
    version: int | None = None
    is_answer_compared: bool = True

    def request(self, things: Things) -> Any:
        """Return the request about some things."""
        return message(APIS[self.key].request, self.fields(things))


def message(cls: type, fields: Mapping[str, Any]) -> Any:
    """Return a message, or a part of one, whose parts are given as dicts."""
    values = dict(fields)
    for field in spec_of(cls).fields:
        given = values.get(field.name)
        if isinstance(given, list) and field.kind is ARRAY and isinstance(field.element, type):
            values[field.name] = [message(field.element, one) for one in given]
    return cls(**values)
