"""What a node declares, advertises and serves is the same, on both kinds of listeners."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from kraftrio.broker.api.unserved_apis import UNSERVED_BY_BROKERS, UNSERVED_BY_CONTROLLERS
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.net.connection import ConnectionLost, open_connection
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from kraftrio.wire.messages.security import SaslHandshakeRequest
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.protocol.framing import RequestStart
from tests.sim.stage import Stage, play

_LISTENERS = [
    pytest.param("broker", "n1", 9092, UNSERVED_BY_BROKERS, id="broker"),
    pytest.param("controller", "n101", 9093, UNSERVED_BY_CONTROLLERS, id="controller"),
]
# Answered, but offered only by a broker that has a receiver of client metrics (KIP-714).
_NOT_ADVERTISED = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS}


@pytest.mark.parametrize(("listener", "host", "port", "unserved"), _LISTENERS)
def test_what_is_declared_is_served_or_listed_with_a_reason(
    listener: str, host: str, port: int, unserved: Mapping[ApiKey, str]
) -> None:
    """A request for what is listed ends its connection, and nothing else."""
    declared = {api.key for api in APIS.values() if listener in api.listeners}
    assert unserved.keys() <= declared, "listed, though not for this kind of listener"
    assert all(unserved.values())

    async def script(stage: Stage) -> None:
        network = stage.cluster.new_host("asker")
        connect = partial(open_connection, network, host, port, client_id="a", connect_timeout_s=5)
        async with connect() as connection:
            answer = await connection.call(
                ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4, 5
            )
            assert isinstance(answer, ApiVersionsResponse)
            offered = {
                ApiKey(one.api_key): (one.min_version, one.max_version) for one in answer.api_keys
            }
            assert offered == {
                key: (APIS[key].min_version, APIS[key].max_version)
                for key in declared - unserved.keys() - _NOT_ADVERTISED
            }
            refusal = await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1, 5)
            assert (refusal.error_code, refusal.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        for key in unserved:
            async with connect() as connection:
                with pytest.raises(ConnectionLost):
                    await connection.call(APIS[key].request(), APIS[key].max_version, 5)

    play(script)


@pytest.mark.parametrize(
    ("key", "api_version", "reason"),
    [
        (
            ApiKey.PUSH_TELEMETRY,
            0,
            "PUSH_TELEMETRY is not served on this listener: without metrics.listener there is no"
            " receiver of client metrics",
        ),
        (ApiKey.LEADER_AND_ISR, 1, "LEADER_AND_ISR is not served on this listener"),
        (999, 0, "api key 999 is not served on this listener"),
    ],
)
def test_the_log_says_why_a_connection_ends(key: int, api_version: int, reason: str) -> None:
    dispatcher = Dispatcher({}, UNSERVED_BY_BROKERS)
    start = RequestStart(key, api_version, 1, "client", 0)
    with pytest.raises(RemoteProtocolError, match=f"^{reason}$"):
        dispatcher.handle(memoryview(b""), start, ClientInfo("host", 1, "PLAINTEXT"))
