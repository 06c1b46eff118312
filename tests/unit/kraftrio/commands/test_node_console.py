"""A node that serves its console: what is refused before it starts, and that it is there then."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.config import BrokerConfig, PropertyError
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.node import Companion, Node
from kraftrio.commands.node_console import make_console

DEADLINE_S = 30.0


def config(folder: Path, **settings: str) -> BrokerConfig:
    """A node's settings; names have _ for Kafka's dots."""
    return BrokerConfig(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(folder / "data"),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def console_of(made: BrokerConfig) -> Companion:
    assert made.console_listener is not None
    return make_console(made, made.console_listener)


async def fetch(port: int, path: str) -> str:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    received = b"".join([data async for data in stream])
    await stream.aclose()
    return received.decode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


async def test_the_console_of_a_node(tmp_path: Path) -> None:
    """It shows the node's own cluster as long as the node serves, and ends with it."""
    port = free_port()
    made = config(tmp_path, console_listener=f"127.0.0.1:{port}")
    announced, stopping = trio.Event(), trio.Event()
    environment = Environment(has_threads=True)
    node = Node(made, environment, lambda _: announced.set(), companion=console_of(made))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run_until, stopping)
        with trio.fail_after(DEADLINE_S):
            await announced.wait()
            page = await fetch(port, "/")
        assert page.startswith("HTTP/1.1 200"), page
        assert "are served and replicated" in page
        assert "read-only" in page
        stopping.set()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_what_cannot_be_served_is_said_before_the_node_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on 127.0.0.1:{port}: .* in use"):
            console_of(config(tmp_path, console_listener=f"127.0.0.1:{port}"))
    wanted = "no listener has the protocol PLAINTEXT, but SSL: name a client's properties file in"
    with pytest.raises(StartError, match=wanted):
        console_of(
            config(
                tmp_path,
                listeners="SSL://127.0.0.1:0",
                console_listener="localhost:0",
                security_inter_broker_protocol="SSL",
            )
        )
    absent = str(tmp_path / "absent.properties")
    with pytest.raises(StartError, match=r"console\.listener: cannot read .*absent.properties"):
        console_of(config(tmp_path, console_listener="localhost:0", console_client_config=absent))
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\n")
    with pytest.raises(StartError, match=r"console.listener: .*sasl"):
        console_of(
            config(tmp_path, console_listener="localhost:0", console_client_config=str(file))
        )


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match=r"console\.listener has 'x': expected host:port"):
        config(tmp_path, console_listener="x")
    with pytest.raises(PropertyError, match=r"process\.roles has no broker"):
        config(
            tmp_path,
            process_roles="controller",
            listeners="CONTROLLER://127.0.0.1:0",
            controller_listener_names="CONTROLLER",
            console_listener="localhost:0",
        )
