"""Connections that have to be let in: nothing is served before, and nobody waits for another."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest
import trio

from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.broker.server.admission.admission import AdmissionRefused, AdmissionSteps
from kraftrio.broker.server.context import ClientInfo
from kraftrio.net.transport import Socket
from tests.unit.broker.server.server_context import Handlers, listening, settled

ALICE = KafkaPrincipal("User", "alice")


class Gate:
    """Lets those in whose turn it is, as the script says."""

    def __init__(self, *verdicts: str) -> None:
        self.verdicts = list(verdicts)
        self.clients: list[ClientInfo] = []
        self.opened = trio.Event()
        self.closed: list[ClientInfo] = []

    async def admit(self, sock: Socket, client: ClientInfo) -> Socket:
        verdict = self.verdicts.pop(0) if self.verdicts else "admit"
        self.clients.append(client)
        client.on_close.append(lambda: self.closed.append(client))
        try:
            await trio.lowlevel.checkpoint()
            if verdict == "hold":
                await self.opened.wait()
            if verdict == "refuse":
                raise AdmissionRefused("no certificate")
            if verdict == "lose":
                raise ConnectionResetError("reset")
            if verdict == "fail":
                raise RuntimeError("a fault of ours")
        except BaseException:
            sock.close()
            raise
        client.principal = ALICE
        return sock


async def test_a_peer_is_served_once_it_is_let_in() -> None:
    gate = Gate("hold")
    async with listening(Handlers(), admission=gate) as (listener, connect):
        client = await connect()
        await client.send(18, 0, 1, b"")
        await settled()
        assert listener.statistics()["connections"] == 1
        assert listener.statistics()["requests_total"] == 0
        gate.opened.set()
        assert (await client.receive())[0] == 1
        assert gate.clients[0].principal == ALICE
        assert listener.statistics()["connections"] == 1


async def test_a_slow_peer_holds_up_no_other() -> None:
    gate = Gate("hold")
    async with listening(Handlers(), admission=gate) as (_, connect):
        await connect()
        other = await connect()
        await other.send(18, 0, 1, b"")
        assert (await other.receive())[0] == 1


@pytest.mark.parametrize("verdict", ["refuse", "lose", "fail"])
async def test_a_peer_that_is_not_let_in_is_forgotten(
    verdict: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(verdict)
    with caplog.at_level(logging.INFO, "kraftrio.server"):
        async with listening(Handlers(), admission=gate) as (listener, connect):
            client = await connect()
            assert await client.is_closed()
            while listener.statistics()["connections"]:
                await trio.lowlevel.checkpoint()
            assert listener._quotas.count == 0
            assert gate.closed == gate.clients, "what hangs on the connection ends with it"
    lines = [record.getMessage() for record in caplog.records]
    expected = {
        "refuse": ["connection refused client=127.0.0.1 listener=PLAINTEXT reason=no certificate"],
        "lose": [],
        "fail": ["admission failed, connection closed client=127.0.0.1"],
    }
    assert lines == expected[verdict]


async def test_who_is_being_let_in_counts_and_ends_with_the_listener() -> None:
    gate = Gate("hold", "hold")
    async with listening(Handlers(), admission=gate) as (listener, connect):
        clients = [await connect(), await connect()]
        await settled()
        assert listener.statistics()["connections"] == 2
        assert listener._quotas.count == 2
    assert [one.is_closed for one in gate.clients] == [True, True]
    assert len(clients) == 2


async def test_steps_follow_each_other() -> None:
    seen: list[Any] = []

    class Step:
        async def admit(self, sock: Any, client: ClientInfo) -> Any:
            await trio.lowlevel.checkpoint()
            seen.append(sock)
            return f"{sock}+"

    steps: Any = AdmissionSteps(Step(), Step())
    client = ClientInfo("h", 1, "L")
    assert await steps.admit("s", client) == "s++"
    assert seen == ["s", "s+"]
    with socket.socket() as unused:
        assert await AdmissionSteps().admit(unused, client) is unused
