"""GetTelemetrySubscriptions and PushTelemetry: metrics of clients (KIP-714).

Behaviour (Kafka's)
- A client without an id gets one. It is asked for what the `client-metrics` resources that fit it
  name, and for nothing where none does.
- Pushes are taken as `metrics/telemetry/client_metrics` says, and shown at `metrics.listener`. A
  broker without that listener offers neither API: a client that asks anyway is asked for nothing.
- What cannot be read is INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftrio.base.clock import Clock
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.metrics.telemetry.client_metrics import ClientMetrics
from kraftrio.broker.metrics.telemetry.subscriptions import (
    ClientIdentity,
    TelemetrySubscription,
    subscription_for,
)
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.cluster import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from kraftrio.wire.primitives import ZERO_UUID, uuid_to_text
from kraftrio.wire.protocol.api import ApiKey

_CODECS = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy: the order Kafka prefers


class TelemetryHandlers:
    """See the module.

    Args:
        metrics: takes what is pushed; None: nothing is.
        new_uuid: makes ids for clients that have none.
    """

    def __init__(
        self,
        dynamic: DynamicConfig,
        metrics: ClientMetrics | None,
        clock: Clock,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self._dynamic = dynamic
        self._metrics = metrics
        self._clock = clock
        self._new_uuid = new_uuid

    def table(self) -> HandlerTable:
        """The handlers by API."""
        table: HandlerTable = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: self.get_subscriptions}
        if self._metrics is not None:
            table[ApiKey.PUSH_TELEMETRY] = self.push
        return table

    def get_subscriptions(
        self, request: GetTelemetrySubscriptionsRequest, context: RequestContext
    ) -> GetTelemetrySubscriptionsResponse:
        """Say what a client is to push."""
        instance_id = request.client_instance_id
        if instance_id == ZERO_UUID:
            instance_id = self._new_uuid()
        try:
            subscription = self._subscription(instance_id, _identity(instance_id, context))
        except KafkaError as error:
            return GetTelemetrySubscriptionsResponse(error_code=error.code, push_interval_ms=0)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=subscription.subscription_id,
            accepted_compression_types=list(_CODECS),
            push_interval_ms=subscription.interval_ms,
            telemetry_max_bytes=self._dynamic.current.telemetry_max_bytes,
            delta_temporality=True,
            requested_metrics=list(subscription.metrics),
        )

    def _subscription(self, instance_id: bytes, identity: ClientIdentity) -> TelemetrySubscription:
        if self._metrics is None:
            return subscription_for(identity, ())
        return self._metrics.subscribe(instance_id, identity, self._clock.monotonic_ms())

    def push(
        self, request: PushTelemetryRequest, _context: RequestContext
    ) -> PushTelemetryResponse:
        """Take what a client pushes."""
        assert self._metrics is not None, "served only where somebody takes it"
        try:
            self._metrics.push(
                request.client_instance_id,
                request.subscription_id,
                request.compression_type,
                bytes(request.metrics),
                self._clock.monotonic_ms(),
                max_bytes=self._dynamic.current.telemetry_max_bytes,
                terminating=request.terminating,
            )
        except KafkaError as error:
            return PushTelemetryResponse(error_code=error.code)
        return PushTelemetryResponse(error_code=ErrorCode.NONE)


def _identity(instance_id: bytes, context: RequestContext) -> ClientIdentity:
    return ClientIdentity(
        client_instance_id=uuid_to_text(instance_id),
        client_id=context.client_id or "",
        client_software_name=context.software_name,
        client_software_version=context.software_version,
        client_source_address=context.client_host,
        client_source_port=str(context.client_port),
    )
