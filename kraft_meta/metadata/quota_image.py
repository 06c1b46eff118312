"""The client quotas of the cluster, a part of its metadata: `QuotaEntity`, `QuotaChanges`.

A quota is a value under a key (`producer_byte_rate` ...) of an entity: a user, a client id, both,
or an address. The default of a kind of entity is an entity, too, whose name is empty: no other has
an empty name.

Called by: image.py; the controller, which changes quotas; requests about them; what enforces
them. Kafka's counterparts: ClientQuotasImage, ClientQuotaEntity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from immutables import Map

from kraftrio.kraft_meta.metadata.image_parts import ImagePart
from kraftrio.kraft_meta.metadata.security_records import ClientQuotaRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
DEFAULT_NAME: Final = ""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

QuotaEntity: TypeAlias = tuple[tuple[str, str], ...]
"""Types and names, sorted by type; DEFAULT_NAME stands for the default entity of a type."""

_NO_VALUES: Final[Map[str, float]] = Map()


def quota_entity(parts: dict[str, str | None]) -> QuotaEntity:
    """Return an entity by its types and names as requests have them (None: the default)."""
    return tuple(
        (kind, DEFAULT_NAME if name is None else name) for kind, name in sorted(parts.items())
    )


class QuotaChanges(ImagePart[QuotaEntity, Map[str, float]]):
    """What changes among the quotas: all values of an entity, by entity."""

    FIELD = "client_quotas"
    RECORDS = (ClientQuotaRecord,)

    __slots__ = ()

    def replay(self, record: ClientQuotaRecord) -> None:
        values = self.current(record.entity) or _NO_VALUES
        if not record.remove:
            values = values.set(record.key, record.value)
        elif record.key in values:
            values = values.delete(record.key)
        self.changed[record.entity] = values or None

    @staticmethod
    def to_records(entries: Map[QuotaEntity, Map[str, float]]) -> Iterator[ClientQuotaRecord]:
        for entity in sorted(entries):
            values = entries[entity]
            for key in sorted(values):
                yield ClientQuotaRecord(entity, key, values[key])
