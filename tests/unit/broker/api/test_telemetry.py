"""Clients are told what to push, and what became of it (KIP-714)."""

from __future__ import annotations

from kraftrio.base.clock import Clock
from kraftrio.broker.api.telemetry import TelemetryHandlers
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.metrics.telemetry.client_metrics import ClientMetrics
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.broker.metrics.telemetry.otlp_messages import gauge, point, pushed

CONTEXT = RequestContext(71, 0, 1, "app", ClientInfo("host", 5, "L"))


def handlers(metrics: ClientMetrics | None) -> TelemetryHandlers:
    class Fixed(Clock):
        def monotonic_ms(self) -> float:
            return 5.0

    config = BrokerConfig({}, host_name=lambda: "h")
    return TelemetryHandlers(DynamicConfig(config, print), metrics, Fixed(), lambda: b"\x07" * 16)


def ask(telemetry: TelemetryHandlers) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
    response = telemetry.get_subscriptions(request, CONTEXT)
    encode(response, 0)
    return response


def test_without_a_receiver_nothing_is_asked_for() -> None:
    telemetry = handlers(None)
    response = ask(telemetry)
    assert response.client_instance_id == b"\x07" * 16
    assert (response.requested_metrics, response.push_interval_ms) == ([], 300_000)
    assert telemetry.table().keys() == {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS}
    assert not Dispatcher(telemetry.table()).advertised(), "nor offered"


def test_with_one_clients_push_what_they_are_asked_for() -> None:
    metrics = ClientMetrics(lambda: [{"metrics": "a.,b.", "interval.ms": "900"}], 10)
    telemetry = handlers(metrics)
    assert len(Dispatcher(telemetry.table()).advertised()) == 2
    asked = ask(telemetry)
    assert (asked.requested_metrics, asked.push_interval_ms) == (["a.", "b."], 900)
    assert ask(telemetry).error_code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    request = PushTelemetryRequest(
        client_instance_id=asked.client_instance_id,
        subscription_id=asked.subscription_id,
        metrics=pushed(gauge("a.x", point(2.0))),
    )
    assert telemetry.push(request, CONTEXT).error_code is ErrorCode.NONE
    assert [family.name for family in metrics.families(6.0)] == ["kafka_client_a_x"]
    request.subscription_id += 1
    request.terminating = True
    assert telemetry.push(request, CONTEXT).error_code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
