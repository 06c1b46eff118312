"""AlterClientQuotas: decisions on the uncommitted image.

Behaviour (Kafka's): each entity succeeds or fails alone, with all of its changes or none; an entity
is a user, a client id, both, or an address; what is named twice fails. validate_only answers as the
real thing would, without records. A value that is there already, and the removal of one that is
not, make no record.

Called by: controller.py. Kafka's counterpart: ClientQuotaControlManager (KIP-546).
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from kraftrio.kraft_meta.controller.control import ControllerResult, DecisionContext
from kraftrio.kraft_meta.metadata.quota_image import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    quota_entity,
)
from kraftrio.kraft_meta.metadata.records import MetadataRecord
from kraftrio.kraft_meta.metadata.security_records import ClientQuotaRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntryData,
    AlterClientQuotasEntryResponse,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
)

# The greatest whole number of a quota, and the name of its type in messages; None: any number.
_Kind = tuple[int, str] | None
_LONG: Final = (2**63 - 1, "a LONG")
_INT: Final = (2**31 - 1, "an INT")
_CLIENT_KEYS: Final[Mapping[str, _Kind]] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: Final[Mapping[str, _Kind]] = {CONNECTION_CREATION_RATE: _INT}
_LEAST_FRACTION: Final = 1e-6

_EMPTY_ENTITY: Final = "Invalid empty client quota entity"


def alter_client_quotas(
    request: AlterClientQuotasRequest, context: DecisionContext
) -> ControllerResult:
    """Decide on each entity of the request."""
    entries: dict[QuotaEntity, AlterClientQuotasEntryData] = {}
    twice: dict[QuotaEntity, None] = {}
    for entry in request.entries:
        entity = quota_entity({part.entity_type: part.entity_name for part in entry.entity})
        if entity in entries:
            twice[entity] = None
        entries[entity] = entry
    records: list[MetadataRecord] = []
    answers = []
    for entity, entry in entries.items():
        answer = AlterClientQuotasEntryResponse(entity=list(entry.entity), error_message=None)
        answers.append(answer)
        try:
            if entity in twice:
                raise _invalid(f"Ignoring duplicate entity {_text(entity)}")
            records += _changes(entity, entry, context)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    if request.validate_only:
        records = []
    return ControllerResult(records, AlterClientQuotasResponse(entries=answers))


def _changes(
    entity: QuotaEntity, entry: AlterClientQuotasEntryData, context: DecisionContext
) -> list[MetadataRecord]:
    keys: dict[str, OpData] = {}
    for op in entry.ops:
        if op.key in keys:
            raise _invalid(
                f"Duplicate quota key {op.key} not updating quota for this entity {_text(entity)}"
            )
        keys[op.key] = op
    kinds = _keys_of(entity, entry)
    values: Mapping[str, float] = context.image.client_quotas.get(entity) or {}
    records: list[MetadataRecord] = []
    for key, op in keys.items():
        if op.remove:
            if key in values:
                records.append(ClientQuotaRecord(entity, key, 0.0, remove=True))
            continue
        _check_value(kinds, key, op.value)
        if values.get(key) != op.value:
            records.append(ClientQuotaRecord(entity, key, op.value))
    return records


def _keys_of(entity: QuotaEntity, entry: AlterClientQuotasEntryData) -> Mapping[str, _Kind]:
    """Return the keys that an entity can have; raise when there cannot be such an entity."""
    names = {part.entity_type: part.entity_name for part in entry.entity}
    if not names:
        raise _invalid(_EMPTY_ENTITY)
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in names:
        return _CLIENT_KEYS
    if len(entity) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId"
        )
    address = names[IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(kinds: Mapping[str, _Kind], key: str, value: float) -> None:
    if key not in kinds:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0.0:  # neither is what is not a number
        raise _invalid(f"Quota {key} must be greater than 0")
    kind = kinds[key]
    if kind is None:
        return
    greatest, type_name = kind
    if value > greatest:
        raise _invalid(f"Proposed value for {key} is too large for {type_name}.")
    if value % 1.0 > _LEAST_FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _text(entity: QuotaEntity) -> str:
    """Return an entity as Java's clients write it."""
    parts = ", ".join(f"{kind}={name or 'null'}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"
