"""DescribeClientQuotas and AlterClientQuotas (KIP-546).

Behaviour (Kafka's)
- What is set is described from the newest image; a filter that is not strict finds entities that
  have other parts besides those that it names. The filter without parts finds all.
- Changes are the active controller's to decide; every entity has its own answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kraftrio.broker.api.shared.decision_parts import decide_in_parts
from kraftrio.broker.ports import ControllerPort, MetadataPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.metadata.quota_image import (
    CLIENT_ID,
    DEFAULT_NAME,
    IP,
    USER,
    QuotaEntity,
)
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.configs import (
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasEntityData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)
from kraftrio.wire.protocol.api import ApiKey

EXACT, DEFAULT, SPECIFIED = 0, 1, 2

_MATCH_NAMES = {DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}


class ClientQuotaHandlers:
    """Serves look-ups and changes of client quotas."""

    def __init__(self, metadata: MetadataPort, controller: ControllerPort) -> None:
        self._metadata = metadata
        self._controller = controller

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe_client_quotas,
            ApiKey.ALTER_CLIENT_QUOTAS: self.alter_client_quotas,
        }

    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, _context: RequestContext
    ) -> Work[DescribeClientQuotasResponse]:
        """Find the entities that a filter means, with all their quotas."""
        try:
            _check_filter(request.components)
        except KafkaError as error:
            return DescribeClientQuotasResponse(
                error_code=error.code, error_message=error.message, entries=None
            )
        found: list[tuple[QuotaEntity, Mapping[str, float]]] = []
        for entity, values in self._metadata.image.client_quotas.items():
            if _is_meant(entity, request):
                found.append((entity, values))
            yield None
        return DescribeClientQuotasResponse(
            error_message="", entries=each(lambda one: _described(*one), found)
        )

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest, context: RequestContext
    ) -> Work[Any]:
        """Let the active controller decide."""
        return decide_in_parts(
            partial(self._controller.submit, api_version=context.api_version), request
        )


def _is_meant(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    names = dict(entity)
    if request.strict and len(names) != len(request.components):
        return False
    for component in request.components:
        name = names.get(component.entity_type)
        if name is None:
            return False
        if component.match_type == EXACT and (name != component.match or name == DEFAULT_NAME):
            return False
        if component.match_type == DEFAULT and name != DEFAULT_NAME:
            return False
    return True


def _described(entity: QuotaEntity, values: Mapping[str, float]) -> DescribeClientQuotasEntryData:
    return DescribeClientQuotasEntryData(
        entity=[
            DescribeClientQuotasEntityData(entity_type=kind, entity_name=name or None)
            for kind, name in entity
        ],
        values=[ValueData(key=key, value=values[key]) for key in sorted(values)],
    )


def _check_filter(components: Sequence[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if kind in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Entity type {kind} cannot appear more than once in the filter.",
            )
        seen.add(kind)
        _check_match(component)
    if IP in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        )


def _check_match(component: ComponentData) -> None:
    if component.match_type == EXACT:
        if component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Request specified MATCH_TYPE_EXACT, but set match string to null.",
            )
    elif component.match_type not in _MATCH_NAMES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    elif component.match is not None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Request specified {_MATCH_NAMES[component.match_type]}, but also specified a match "
            "string.",
        )
