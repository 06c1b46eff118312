"""Listeners: IPv4 and IPv6, names and wildcards, and what shares a port."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest
import trio

from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.types import PropertyError
from kraftrio.broker.server.listening import BoundListener, bind_listeners
from kraftrio.net.transport import SystemNetwork, peer_host


def has_ipv6() -> bool:
    """Whether this machine has ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


def free_port() -> int:
    """A port that is free for both families."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as probe:
        return int(probe.getsockname()[1])


def load(listeners: str, **more: str) -> BrokerConfig:
    names = [one.partition("://")[0] for one in listeners.split(",")]
    return BrokerConfig(
        {
            "listeners": listeners,
            "advertised.listeners": ",".join(f"{name}://localhost:1" for name in names),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": names[0],
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def bound(config: BrokerConfig) -> list[BoundListener]:
    sockets: list[BoundListener] = []
    bind_listeners(config, SystemNetwork(), sockets)
    return sockets


def reached(sockets: list[BoundListener], *hosts: str) -> dict[str, str]:
    """Which listener a connection to each address comes to, and as whom its peer is known."""
    found = {}
    for host in hosts:
        port = sockets[0][1].getsockname()[1]
        try:
            connection = socket.create_connection((host, port), 5)
        except ConnectionRefusedError:
            found[host] = "refused"
            continue
        with connection:
            for listener, sock in sockets:
                try:
                    accepted, address = sock.accept()
                except BlockingIOError:
                    continue
                accepted.close()
                found[host] = f"{listener.name} from {peer_host(address[0])}"
    return found


def close(sockets: list[BoundListener]) -> None:
    for _, sock in sockets:
        sock.close()


@needs_ipv6
@pytest.mark.parametrize("host", ["", "[::]"])
def test_no_host_is_every_address(host: str) -> None:
    """Of both families; an IPv4 peer keeps its plain address."""
    sockets = bound(load(f"PLAINTEXT://{host}:0"))
    assert reached(sockets, "127.0.0.1", "::1") == {
        "127.0.0.1": "PLAINTEXT from 127.0.0.1",
        "::1": "PLAINTEXT from ::1",
    }
    close(sockets)


def test_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """No host is every IPv4 address then."""
    plain = socket.socket

    def make(family: int = socket.AF_INET, *rest: Any, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return plain(family, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr("kraftrio.net.transport.socket.socket", make)
        sockets = bound(load("PLAINTEXT://:0"))
    assert reached(sockets, "127.0.0.1") == {"127.0.0.1": "PLAINTEXT from 127.0.0.1"}
    close(sockets)


@needs_ipv6
@pytest.mark.parametrize(("v4", "v6"), [("127.0.0.1", "[::1]"), ("0.0.0.0", "[::]")])
@pytest.mark.parametrize("is_v6_first", [True, False])
def test_one_port_for_both_families(v4: str, v6: str, is_v6_first: bool) -> None:
    """A listener for each, in either order, also for all addresses (KIP-797)."""
    port = free_port()
    listeners = [f"V4://{v4}:{port}", f"V6://{v6}:{port}"]
    sockets = bound(load(",".join(sorted(listeners, reverse=is_v6_first))))
    assert reached(sockets, "127.0.0.1", "::1") == {
        "127.0.0.1": "V4 from 127.0.0.1",
        "::1": "V6 from ::1",
    }
    close(sockets)


@pytest.mark.parametrize(
    "listeners",
    [
        "A://localhost:9092,B://127.0.0.1:9092",
        "A://:9092,B://[::1]:9092",
        "A://127.0.0.1:9092,B://127.0.0.2:9092",
        "A://127.0.0.1:9092,B://[::1]:9092,C://127.0.0.2:9092",
    ],
)
def test_a_port_used_twice(listeners: str) -> None:
    """Is refused unless one is IPv4 and the other IPv6, by their addresses, as in Kafka."""
    with pytest.raises(PropertyError, match="listeners has port 9092 twice"):
        load(listeners)


@needs_ipv6
def test_a_taken_port_is_reported() -> None:
    """With the address as one writes it."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on \[::1\]:{port}: Address already"):
            bound(load(f"PLAINTEXT://[::1]:{port}"))


def test_backlog_follows_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """socket.listen.backlog.size where it is set."""
    seen = []
    network = SystemNetwork()
    bind = network.bind

    def watch(host: str, port: int, *, backlog: int, ipv6_only: bool) -> socket.socket:
        seen.append(backlog)
        return bind(host, port, backlog=backlog, ipv6_only=ipv6_only)

    monkeypatch.setattr(network, "bind", watch)
    for more in ({}, {"socket_listen_backlog_size": "7"}):
        sockets: list[BoundListener] = []
        bind_listeners(load("PLAINTEXT://localhost:0", **more), network, sockets)
        close(sockets)
    assert seen == [512, 7]


@needs_ipv6
def test_brackets_stand_wherever_a_host_may() -> None:
    """Listeners, advertised ones, voters, limits of single addresses."""
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:9093",
            "advertised.listeners": "PLAINTEXT://[fe80::1%eth0]:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@[::1]:9093",
            "max.connections.per.ip.overrides": "[0:0::1]:3,::2:4,127.0.0.1:5",
        }
    )
    assert [one.host for one in config.listeners] == ["::1", "::1"]
    assert config.advertised_broker_listeners[0].host == "fe80::1%eth0"
    assert config.controller_quorum_voters[0][1:] == ("::1", 9093)
    assert config.max_connections_per_ip_overrides == {"::1": 3, "::2": 4, "127.0.0.1": 5}


@needs_ipv6
async def test_connections_to_ipv6_addresses() -> None:
    """The port that clients and brokers use takes the bare address."""
    network = SystemNetwork()
    sock = network.bind("::1", 0)
    with trio.fail_after(5):
        (await network.connect("::1", sock.getsockname()[1])).close()
        accepted, address = sock.accept()
    assert address[0] == "::1"
    accepted.close()
    sock.close()
