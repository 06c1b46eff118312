"""How many clients a broker lets in per second, and what a login costs it.

Called by `bench.py --logins`. Clients connect, log in by SASL and leave, eight at a time: by SCRAM
with 4,096 iterations, and by PLAIN. The client salts its password once, so that the figures are the
broker's as far as two processors allow; its processor time per login says what it does itself.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Final

import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import Metrics, RunningBroker, running

from kraftrio.base.threads import run_in_worker_thread
from kraftrio.net.connection import open_connection
from kraftrio.net.sasl.credentials import client_credentials
from kraftrio.net.sasl.login import SaslLogin
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kraftrio.wire.sasl.scram_keys import ScramMechanism, salted_password

_AT_A_TIME = 8
_COUNT = 3000
_WARM_UP = 1500  # a JVM compiles what it has done often
_PACKAGE = "org.apache.kafka.common.security"
_JAAS: Final = {
    "PLAIN": f'{_PACKAGE}.plain.PlainLoginModule required username="a" password="b"',
    "SCRAM-SHA-256": f'{_PACKAGE}.scram.ScramLoginModule required username="a" password="b"',
    "SCRAM-SHA-512": f'{_PACKAGE}.scram.ScramLoginModule required username="a" password="b"',
}
_PREFIX = "listener.name.plaintext."
_SETTINGS = (
    "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    f"sasl.enabled.mechanisms={','.join(_JAAS)}",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    f'{_PREFIX}plain.sasl.jaas.config={_JAAS["PLAIN"]} user_a="b";',
    f"{_PREFIX}scram-sha-256.sasl.jaas.config={_JAAS['SCRAM-SHA-256']};",
    f"{_PREFIX}scram-sha-512.sasl.jaas.config={_JAAS['SCRAM-SHA-512']};",
)


def measure_logins(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one broker."""
    with running(kind, metrics, _SETTINGS) as broker:
        trio.run(_add_users, broker)
        for mechanism in _JAAS:
            trio.run(_log_in_often, broker, mechanism, int(_WARM_UP * scale))
            began_s, began_cpu_s = time.perf_counter(), broker.cpu_s()
            count = int(_COUNT * scale)
            trio.run(_log_in_often, broker, mechanism, count)
            duration_s = time.perf_counter() - began_s
            metrics.add(f"{mechanism}, logins/s", count / duration_s)
            cost_ms = (broker.cpu_s() - began_cpu_s) * 1000 / count
            metrics.add(f"{mechanism}, broker CPU ms per login", cost_ms)


def _network(mechanism: str) -> SecuredNetwork:
    settings = {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{_JAAS[mechanism]};"}
    rng = random.Random(1)
    credentials = client_credentials(settings, rng, lambda: 0)
    return SecuredNetwork(
        SystemNetwork(), login=SaslLogin(credentials, run_in_worker_thread, rng, "bench")
    )


async def _add_users(broker: RunningBroker) -> None:
    host, port = broker.address.split(":")
    upsertions = [
        ScramCredentialUpsertion(
            name="a",
            mechanism=mechanism,
            iterations=4096,
            salt=b"salt",
            salted_password=salted_password(mechanism, "b", b"salt", 4096),
        )
        for mechanism in ScramMechanism
    ]
    async with open_connection(
        _network("PLAIN"), host, int(port), client_id="bench", connect_timeout_s=30
    ) as connection:
        for upsertion in upsertions:
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            response = await connection.call(request, 0, 30)
            assert response.results[0].error_code == ErrorCode.NONE, response


async def _log_in_often(broker: RunningBroker, mechanism: str, count: int) -> None:
    host, port = broker.address.split(":")
    network = _network(mechanism)
    left = count

    async def log_in() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            sock = await network.connect(host, int(port))
            sock.close()

    async with trio.open_nursery() as nursery:
        for _ in range(_AT_A_TIME):
            nursery.start_soon(log_in)
