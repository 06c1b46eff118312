"""A listener with TLS and peers that do not fit: broken handshakes, other protocols, settings."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from kraftrio import Admin
from kraftrio.clients.security import security_settings
from tests.conformance.tls_broker import TlsBroker
from tests.integration.test_fuzz import rss_mb
from tests.integration.test_start_errors import failed_start
from tests.integration.wire_client import wait_until
from tests.security.certificates import (
    PASSWORD,
    Authority,
    Identity,
    key_store,
    trust_store,
    write_private,
)

HOST = "127.0.0.1"
BROKEN_HANDSHAKES = 20_000
ATTACKERS = 8
HELD_OPEN = 400
MAX_RSS_MB = 150
MAX_CONNECT_S = 5.0
CA = Authority()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path / "broker", CA) as made:
        yield made


def asks_versions(sock: socket.socket) -> bool:
    """Whether an ApiVersions request gets its reply."""
    sock.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
    return sock.recv(8)[4:] == struct.pack(">i", 7)


def client_hello() -> bytes:
    """What a client sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


class Attacker(threading.Thread):
    """Connects again and again, and sends what is not a handshake, or half of one."""

    def __init__(self, address: tuple[str, int], seed: int, count: int) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(seed)
        self.address = address
        self.count = count
        self.done = 0
        self.held: list[socket.socket] = []
        self.hello = client_hello()

    def run(self) -> None:
        for _ in range(self.count):
            sock = socket.create_connection(self.address, 20)
            with contextlib.suppress(OSError):
                sock.sendall(self.data())
            if self.rng.random() < HELD_OPEN / BROKEN_HANDSHAKES:
                self.held.append(sock)
            else:
                sock.close()
            self.done += 1

    def data(self) -> bytes:
        rng = self.rng
        hello = bytearray(self.hello)
        match rng.randrange(4):
            case 0:
                return rng.randbytes(rng.randint(0, 600))
            case 1:
                return bytes(hello[: rng.randint(1, len(hello))])
            case 2:
                return struct.pack(">ihhih", 10, 18, 0, 7, -1)
        for _ in range(rng.randint(1, 10)):
            hello[rng.randrange(len(hello))] = rng.randrange(256)
        return bytes(hello) + rng.randbytes(rng.randint(0, 30))

    def close(self) -> None:
        for sock in self.held:
            sock.close()


def test_20_000_broken_handshakes(broker: TlsBroker) -> None:
    """Memory is bounded, nothing is a traceback, no client gets in; a whole handshake is served."""
    attackers = [
        Attacker(broker.tls_address, seed, BROKEN_HANDSHAKES // ATTACKERS)
        for seed in range(ATTACKERS)
    ]
    for attacker in attackers:
        attacker.start()
    longest_s, served = 0.0, 0
    while any(attacker.is_alive() for attacker in attackers):
        begin = time.monotonic()
        with broker.connect() as sock:
            assert asks_versions(sock)
        served += 1
        longest_s = max(longest_s, time.monotonic() - begin)
        time.sleep(0.05)
    assert sum(attacker.done for attacker in attackers) == BROKEN_HANDSHAKES
    assert served > 10 and longest_s < MAX_CONNECT_S
    assert rss_mb(broker) < MAX_RSS_MB
    for attacker in attackers:
        attacker.close()
    refused = [line for line in broker.log_text().splitlines() if "connection refused" in line]
    assert 0 < len(refused) < 300, "a line for each would fill the log"
    broker.check_log()


def test_plaintext_at_a_listener_with_tls_and_the_reverse(broker: TlsBroker) -> None:
    """Both are closed at once, without an answer that the peer would misread, and logged."""
    begin = time.monotonic()
    with socket.create_connection(broker.tls_address, 20) as sock:
        sock.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        assert sock.recv(100) == b""
    with socket.create_connection((HOST, broker.port), 20) as sock:
        sock.sendall(client_hello())
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert time.monotonic() - begin < 5

    def wait_for_line(line: str) -> None:
        wait_until(lambda: line in broker.log_text(), f"the line {line!r}")

    wait_for_line("listener=SSL reason=TLS: the peer does not speak TLS")
    wait_for_line("reason=the peer speaks TLS, and this side does not")


@pytest.mark.parametrize("kind", ["PEM", "PEM_INLINE", "PKCS12", "JKS"])
def test_our_clients_take_stores_of_each_kind(broker: TlsBroker, kind: str, tmp_path: Path) -> None:
    stores = key_store(tmp_path, CA.client("alice"), kind) | trust_store(tmp_path, CA, kind=kind)
    security = security_settings({"security.protocol": "SSL", **stores})
    host, port = broker.tls_address

    async def ask() -> int:
        async with Admin(f"{host}:{port}", **security) as admin:
            return len((await admin.describe_cluster()).nodes)

    assert trio.run(ask) == 1


def mismatched(folder: Path) -> dict[str, str]:
    return key_store(folder, Identity(CA.server().key, CA.server().certificate))


def readable(folder: Path) -> dict[str, str]:
    properties = key_store(folder, CA.server(), "PKCS12")
    os.chmod(properties["ssl.keystore.location"], 0o644)
    return properties


def damaged(folder: Path) -> dict[str, str]:
    properties = key_store(folder, CA.server(), "JKS")
    write_private(Path(properties["ssl.keystore.location"]), b"\xfe\xed\xfe\xed junk")
    return properties


FAULTS: dict[str, tuple[Callable[[Path], dict[str, str]], str]] = {
    "wrong password": (
        lambda folder: {**key_store(folder, CA.server(), "JKS"), "ssl.keystore.password": "no"},
        "its password is wrong, or the file was changed",
    ),
    "wrong key password": (
        lambda folder: {
            **key_store(folder, CA.server(), "JKS", key_password="x"),
            "ssl.key.password": "y",
        },
        "the password of the key is wrong",
    ),
    "missing file": (
        lambda folder: {"ssl.keystore.location": "/none", "ssl.keystore.password": "x"},
        "ssl.keystore.location /none cannot be read: No such file or directory",
    ),
    "mismatch": (mismatched, "the certificate does not belong to the private key"),
    "readable": (readable, "everybody may read or write it (mode 0644): run chmod o-rw on it"),
    "damaged": (damaged, "cannot be used"),
    "no key store": (lambda folder: {}, "a listener with TLS needs a certificate"),
    "stranger": (
        lambda folder: {
            **key_store(folder, CA.server()),
            **trust_store(folder, Authority()),
            "security.inter.broker.protocol": "SSL",
        },
        "is not trusted by ssl.truststore",
    ),
    "rules": (
        lambda folder: {**key_store(folder, CA.server()), "ssl.principal.mapping.rules": "x"},
        "ssl.principal.mapping.rules has 'x'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_start_that_fails_says_why(fault: str, tmp_path: Path) -> None:
    """In one sentence, before anything is written, and without a secret."""
    make, sentence = FAULTS[fault]
    settings = {"listeners": f"PLAINTEXT://{HOST}:0,SSL://{HOST}:0", **make(tmp_path)}
    options = [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]
    data = tmp_path / "data"
    said = failed_start("--data", data, *options)
    assert said.startswith("listener SSL: ") and sentence in said
    assert PASSWORD not in said
    assert not data.exists()
