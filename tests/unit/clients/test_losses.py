"""A connection may be lost at any byte of what passes over it: every client just goes on."""

from __future__ import annotations

import errno
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

T0 = TopicPartition("t", 0)
PATIENT: dict[str, Any] = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 1,
}


class CuttingNetwork:
    """A network that breaks one connection, after so many bytes of all that passed.

    Args:
        kind: what the client meets there: its end of the connection is "reset" or "closed", or it
            can no longer "send"; or "connect": the attempt to connect after so many others fails.
    """

    def __init__(self, network: Any, kind: str, after: float) -> None:
        self._network = network
        self.kind = kind
        self.left = after
        self.has_cut = False

    async def connect(self, host: str, port: int) -> CuttingSocket:
        if self.kind == "connect":
            self.left -= 1
            if self.left < 0 and not self.has_cut:
                self.has_cut = True
                raise ConnectionResetError(errno.ECONNRESET, "reset while connecting")
        return CuttingSocket(self, await self._network.connect(host, port))

    async def wait_readable(self, sock: CuttingSocket) -> None:
        if self.is_due("reset", "closed") or sock.is_cut:
            await trio.lowlevel.checkpoint()
        else:
            await self._network.wait_readable(sock.inner)

    async def wait_writable(self, sock: CuttingSocket) -> None:
        await self._network.wait_writable(sock.inner)

    def notify_closing(self, sock: CuttingSocket) -> None:
        self._network.notify_closing(sock.inner)

    def is_due(self, *kinds: str) -> bool:
        return self.kind in kinds and not self.has_cut and self.left <= 0


class CuttingSocket:
    """One of its connections."""

    def __init__(self, network: CuttingNetwork, inner: Any) -> None:
        self.inner = inner
        self.is_cut = False
        self._network = network

    def recvmsg_into(self, buffers: list[Any]) -> tuple[int, Any, int, Any]:
        network = self._network
        if network.is_due("reset", "closed"):
            network.has_cut = self.is_cut = True
        if self.is_cut:
            if network.kind == "closed":
                return 0, [], 0, None
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        if network.kind not in ("reset", "closed") or network.has_cut:
            received: tuple[int, Any, int, Any] = self.inner.recvmsg_into(buffers)
            return received
        view = memoryview(buffers[0]).cast("B")
        most = int(min(network.left, len(view)))
        count = self.inner.recvmsg_into([view[:most]])[0]
        network.left -= count
        return count, [], 0, None

    def send(self, data: Any) -> int:
        network = self._network
        if network.kind != "send" or network.has_cut:
            return int(self.inner.send(data))
        if network.left <= 0:
            network.has_cut = True
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        view = memoryview(data).cast("B")
        count = int(self.inner.send(view[: int(min(network.left, len(view)))]))
        network.left -= count
        return count

    def sendmsg(self, buffers: list[Any]) -> int:
        return self.send(b"".join(bytes(buffer) for buffer in buffers))

    def close(self) -> None:
        self.inner.close()


Program = Callable[[Kafka, Any], Awaitable[None]]


async def produce(kafka: Kafka, network: Any) -> None:
    """Write one record, idempotently."""
    async with Producer(kafka.bootstrap, network=network, **PATIENT) as producer:
        await (await producer.send("t", b"x", timestamp_ms=kafka.now_ms()))


async def read(kafka: Kafka, network: Any) -> None:
    """Read the first records of a partition."""
    async with Consumer(kafka.bootstrap, network=network, **PATIENT) as consumer:
        consumer.assign([T0])
        consumer.seek_to_beginning()
        assert await consumer.poll()


async def belong(kafka: Kafka, network: Any) -> None:
    """Read as a member of a group, commit, and leave."""
    async with Consumer(
        kafka.bootstrap,
        network=network,
        group_id="g",
        client_id="c",
        session_timeout_ms=6_000,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **PATIENT,
    ) as consumer:
        await consumer.subscribe("t")
        assert await consumer.poll()
        await consumer.commit({T0: 0})


async def administer(kafka: Kafka, network: Any) -> None:
    """Ask the controller, any broker, and a leader."""
    async with Admin(kafka.bootstrap, network=network, **PATIENT) as admin:
        await admin.describe_topics(["t"])
        await admin.list_offsets({T0: -1})
        await admin.create_partitions({"t": 1}, raise_errors=False)


# How many bytes pass until the program has done its work, and how many programs are tried.
@pytest.mark.parametrize("kind", ["reset", "closed", "send", "connect"])
@pytest.mark.parametrize("program", [produce, read, belong, administer])
async def test_a_loss_at_any_byte_is_an_ordinary_loss(
    kafka: Kafka, program: Program, kind: str
) -> None:
    """Wherever the connection ends, the program does its work as if nothing was."""
    await kafka.create("t")
    await kafka.fill("t", 3)
    whole = CuttingNetwork(kafka.network, kind, 1_000_000)
    await program(kafka, whole)
    passed = 1_000_000 - whole.left
    assert passed >= 2
    step = 1 if kind == "connect" else max(passed / 60, 1)
    tried = 0
    for number in range(math.ceil(passed / step)):
        network = CuttingNetwork(kafka.network, kind, int(number * step))
        with trio.fail_after(60):
            await program(kafka, network)
        tried += network.has_cut
    assert tried >= math.ceil(passed / step) * 0.8


async def test_a_loss_right_after_the_versions_are_known(kafka: Kafka) -> None:
    """The answer to ApiVersions and the end of the connection arrive together, again and again."""
    await kafka.create("t")
    sizes = CuttingNetwork(kafka.network, "reset", 1_000_000)
    async with Admin(kafka.bootstrap, network=sizes) as admin:  # type: ignore[arg-type]
        node = admin._begin(None)[0].cluster._nodes.candidates()[0]
        await node.connect()
    versions_bytes = 1_000_000 - sizes.left
    for _ in range(30):
        await produce(kafka, CuttingNetwork(kafka.network, "reset", versions_bytes))
