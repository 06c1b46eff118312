"""The admin client's part for quotas: how much users, clients and addresses may use.

Owns `ClientQuotaAdmin`, which programs reach as `Admin.quotas`, and the values it takes.

Called by: `admin`. KIP-546, KIP-612 (addresses), KIP-599 (controller mutations).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftrio.clients.admin.calls import Begin, collect, finish
from kraftrio.clients.admin.types import Results
from kraftrio.clients.arguments.several import by_item
from kraftrio.clients.arguments.times import Duration
from kraftrio.clients.arguments.values import text
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    OpData,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota is for: a user, a client id, both, or an address; "" is the default of a kind.

    A kind that is None does not matter for the quota.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str | None]:
        """What is given, by Kafka's names for it; None is the default."""
        given = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        return {kind: name or None for kind, name in given.items() if name is not None}


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Which entities are meant.

    Attributes:
        user: a name, "" for the default, "*" for any that is given; None: whatever it is.
        client_id: the same.
        ip: the same.
        strict: whether entities that have more than what is given here are left out.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    strict: bool = False


class ClientQuotaAdmin:
    """Administers quotas.

    Args:
        begin: begins a call, which may take some milliseconds at most.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    async def describe(
        self, wanted: QuotaFilter | None = None, *, timeout_ms: Duration | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of the entities that fit, such as "producer_byte_rate", by name.

        Raises:
            ClusterAuthorizationError: the user may not describe the cluster's settings.
        """
        chosen = QuotaFilter() if wanted is None else wanted
        if not isinstance(chosen, QuotaFilter):
            raise TypeError(f"a quota filter must be a QuotaFilter, not {chosen!r}")
        calls, deadline = self._begin(timeout_ms)
        response: DescribeClientQuotasResponse = await calls.ask_any(
            DescribeClientQuotasRequest(components=_components(chosen), strict=chosen.strict),
            deadline,
            lambda answer: (answer.error_code, answer.error_message),
        )
        return {
            _entity({part.entity_type: part.entity_name for part in entry.entity}): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[QuotaEntity, None]:
        """Set quotas by name, or remove them (None).

        Raises:
            InvalidRequestError, ClusterAuthorizationError, ...: for an entity, if `raise_errors`.
        """
        entries = [_entry(entity, values) for entity, values in by_item("changes", changes).items()]
        calls, deadline = self._begin(timeout_ms)
        response: AlterClientQuotasResponse = await calls.ask_any(
            AlterClientQuotasRequest(entries=entries, validate_only=validate_only), deadline
        )
        results = collect(
            (
                _entity({part.entity_type: part.entity_name for part in reported.entity}),
                reported.error_code,
                reported.error_message,
                None,
            )
            for reported in response.entries
        )
        return finish(results, raise_errors)


def _components(wanted: QuotaFilter) -> list[ComponentData]:
    found = []
    given = {"user": wanted.user, "client-id": wanted.client_id, "ip": wanted.ip}
    for kind, name in given.items():
        if name is None:
            continue
        text(f"the {kind} of a quota filter", name)
        if name == "*":
            found.append(ComponentData(entity_type=kind, match_type=_ANY, match=None))
        elif not name:
            found.append(ComponentData(entity_type=kind, match_type=_DEFAULT, match=None))
        else:
            found.append(ComponentData(entity_type=kind, match_type=_EXACT, match=name))
    return found


def _entry(entity: QuotaEntity, values: Mapping[str, float | None]) -> AlterClientQuotasEntryData:
    if not isinstance(entity, QuotaEntity):
        raise TypeError(f"an entity of a quota must be a QuotaEntity, not {entity!r}")
    for kind, name in entity.parts.items():
        if name is not None:
            text(f"the {kind} of a quota", name)
    return AlterClientQuotasEntryData(
        entity=[
            AlterClientQuotasEntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.parts.items()
        ],
        ops=[_operation(name, value) for name, value in by_item("the quotas", values).items()],
    )


def _operation(name: str, value: float | None) -> OpData:
    text("the name of a quota", name)
    if value is None:
        return OpData(key=name, value=0.0, remove=True)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError(f"{name} must be a number, not {value!r}")
    return OpData(key=name, value=float(value), remove=False)


def _entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    named = {kind: name or "" for kind, name in parts.items()}
    return QuotaEntity(named.get("user"), named.get("client-id"), named.get("ip"))
