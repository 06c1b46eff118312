"""A node's figures, at its metrics listener: all that the sheet names, and no others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from prometheus_client.parser import text_string_to_metric_families

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.metrics.families import FAMILIES
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.node import Node
from kraftrio.net.transport import SystemNetwork

# Of the listeners, by API: the metrics of requests have them.
_BY_API = ("connections", "requests_total")


class OwnNetwork(SystemNetwork):
    """Remembers which ports it gave."""

    def __init__(self) -> None:
        self.ports: list[int] = []

    def bind(self, *args: object, **settings: object) -> object:  # type: ignore[override]
        sock = super().bind(*args, **settings)  # type: ignore[arg-type]
        self.ports.append(sock.getsockname()[1])
        return sock


class Running:
    """A node that serves, and asks itself for its pages."""

    def __init__(self, node: Node, port: int, stopping: trio.Event) -> None:
        self.node = node
        self.stopping = stopping
        self._port = port

    async def page(self, path: str) -> tuple[int, str]:
        """The status and the body."""
        stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        await stream.send_all(
            f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()
        )
        received = b"".join([data async for data in stream])
        await stream.aclose()
        head, _, body = received.partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()


@asynccontextmanager
async def running(folder: Path, *, ready: bool = True) -> AsyncIterator[Running]:
    network, stopping, announced = OwnNetwork(), trio.Event(), trio.Event()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "metrics.listener": "127.0.0.1:0",
    }
    config = BrokerConfig(settings, host_name=lambda: "localhost")
    node = Node(config, Environment(network=network), lambda _line: announced.set())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run_until, stopping)
        if ready:
            await announced.wait()
        yield Running(node, network.ports[-1], stopping)
        stopping.set()


async def test_every_metric_of_the_sheet_is_shown(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        status, text = await node.page("/metrics")
        assert status == 200
        described = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        assert [family.name for family in FAMILIES if family.name not in described] == []
        shown = {family.name for family in text_string_to_metric_families(text)}
        assert "process_open_fds" in shown


async def test_every_figure_of_a_shell_is_in_the_sheet(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        metrics = node.node._context.metrics
        named = {(family.source, family.figure) for family in FAMILIES}
        said = {
            (source, figure)
            for source, shells in metrics.sources.items()
            for shell in shells
            for figure in shell()
            if not (source == _BY_API[0] and figure.endswith(_BY_API[1]))
        }
        assert said - named == set()


async def test_a_node_says_whether_it_serves(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        status, body = await node.page("/ready")
        assert (status, json.loads(body)["is_ready"]) == (200, True)
        status, body = await node.page("/health")
        assert (status, json.loads(body)["problems"]) == (200, [])
        assert (await node.page("/other"))[0] == 404
        node.node._observation.is_serving = False
        assert (await node.page("/ready"))[0] == 503
        log_dir = next(iter(node.node._storage.log_manager.dirs))
        log_dir.failure = OSError("broken")
        assert "offline: broken" in json.loads((await node.page("/health"))[1])["problems"][0]
        log_dir.failure = None
