"""DescribeClientQuotas (KIP-546). No quota can be set on this broker, so none is ever found; but
filters are checked as in Apache Kafka, with the same error messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.configs import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kraftrio.wire.protocol.api import ApiKey

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2

_MATCH_NAMES = {DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}


class QuotaHandlers:
    """Serves look-ups of client quotas."""

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe_client_quotas}

    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, _context: RequestContext
    ) -> DescribeClientQuotasResponse:
        """Find no quotas, or refuse the filter."""
        try:
            _check_filter(request.components)
        except KafkaError as error:
            return DescribeClientQuotasResponse(
                error_code=error.code, error_message=error.message, entries=None
            )
        return DescribeClientQuotasResponse(error_message="", entries=[])


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
