"""`kraftrio doctor` in broken set-ups: it names the cause of each, with what to do about it."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker_process import Broker, free_port_pair
from tests.conformance.cli.terminal import DEADLINE_S, command_line, run
from tests.conformance.secured.broker import PASSWORD, USER, SecuredBroker
from tests.integration.disks import SmallDisk

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def examine(bootstrap: str, *arguments: str, status: int = 1) -> list[dict[str, Any]]:
    """Return what is wrong; each problem has a remedy."""
    ended = run("doctor", "--json", *arguments, bootstrap=bootstrap)
    assert ended.status == status, ended.everything
    rows = [json.loads(line) for line in ended.output.splitlines()]
    found = [row for row in rows if row["status"] != "ok"]
    assert all(row["remedy"] for row in found)
    if status:
        assert ended.errors.count("\n") == 1
        assert " found" in ended.errors
    return [row for row in found if row["check"] not in ("files", "disk")]


@contextlib.contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """Listen, and answer whatever comes with some bytes, then hang up; None: say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    kept.append(accepted)
                    if answer is not None:
                        accepted.recv(4096)
                        accepted.sendall(answer)
                        accepted.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in kept:
            each.close()


@pytest.fixture
def firewalled() -> Iterator[str]:
    """A port that takes no connection and refuses none: its queue is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        yield f"127.0.0.1:{address[1]}"
        for each in waiting:
            each.close()


def test_nothing_is_wrong(bootstrap: str) -> None:
    assert not examine(bootstrap, status=0)
    for width in (None, 60, 160):
        shown = run("doctor", bootstrap=bootstrap, width=width)
        assert shown.status == 0
        assert "ok       protocol" in shown.output


def test_a_name_that_does_not_resolve() -> None:
    (found,) = examine("no-such-broker.invalid:9092")
    assert found["check"] == "name"
    assert "the name no-such-broker.invalid does not resolve" in found["found"]


def test_the_wrong_port() -> None:
    (found,) = examine(f"127.0.0.1:{free_port_pair()}")
    assert found["check"] == "port"
    assert "nobody listens" in found["found"]


def test_a_port_behind_a_firewall(firewalled: str) -> None:
    (found,) = examine(firewalled)
    assert found["check"] == "port"
    assert "did not take the connection" in found["found"]
    assert "firewall" in found["remedy"]


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server listens there"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak Kafka's protocol"),
        (b"", "does not answer, or closes the connection"),
        (None, "does not answer, or closes the connection"),
    ],
)
def test_what_listens_is_no_broker(answer: bytes | None, word: str) -> None:
    with server(answer) as address:
        (found,) = examine(address)
    assert found["check"] == "protocol"
    assert word in found["found"]


def test_one_of_several_addresses_is_wrong(bootstrap: str) -> None:
    wrong = f"127.0.0.1:{free_port_pair()}"
    (found,) = examine(f"{wrong},{bootstrap}")
    assert found["subject"] == wrong


@pytest.mark.parametrize(
    ("host", "word"), [("nowhere.invalid", "does not resolve"), ("127.0.0.1", "nobody listens")]
)
def test_advertised_addresses(make_broker: Callable[..., Broker], host: str, word: str) -> None:
    """The bootstrap address works, but the one that the broker advertises does not."""
    port = free_port_pair()
    broker = make_broker(advertised_listeners=f"PLAINTEXT://{host}:{port}")
    (found,) = examine(broker.address)
    assert found["check"] == "advertised"
    assert word in found["found"]
    assert "advertised.listeners" in found["remedy"]


def test_an_advertised_address_of_another_cluster(
    make_broker: Callable[..., Broker], bootstrap: str
) -> None:
    broker = make_broker(advertised_listeners=f"PLAINTEXT://{bootstrap}")
    (found,) = examine(broker.address)
    assert "another cluster answers there" in found["found"]


def test_a_properties_file_that_is_wrong(bootstrap: str, tmp_path: Path) -> None:
    """The cluster has nothing to do with it: one sentence."""
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\nssl.truststore.location=/nowhere/ca.pem\n")
    ended = run("doctor", "--config", str(path), bootstrap=bootstrap)
    assert ended.status != 0
    assert "/nowhere/ca.pem" in ended.everything
    assert "Traceback" not in ended.everything


def test_too_few_open_files(bootstrap: str) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    ended = subprocess.run(
        [*command_line("doctor", "--json"), "--bootstrap-server", bootstrap],
        capture_output=True,
        preexec_fn=limit,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 1
    (found,) = [
        row for row in map(json.loads, ended.stdout.splitlines()) if row["check"] == "files"
    ]
    assert (found["status"], found["found"][:3]) == ("problem", "128")


def test_a_full_disk(bootstrap: str, tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 1 << 20) as disk:
        ended = run("doctor", "--json", "--data", str(disk.path), bootstrap=bootstrap)
    assert ended.status == 1
    (found,) = [row for row in map(json.loads, ended.output.splitlines()) if row["check"] == "disk"]
    assert "the disk is full" in found["found"]


# -- TLS and logins -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with a listener for each way to be refused."""
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
def properties(tmp_path: Path) -> Callable[..., str]:
    """Write a client's properties; names have _ for Kafka's dots."""

    def write(**settings: object) -> str:
        path = tmp_path / "client.properties"
        lines = [f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()]
        path.write_text("".join(lines))
        return str(path)

    return write


def trusting(secured: SecuredBroker, listener: str = "SSL") -> dict[str, object]:
    access = secured.access(listener)
    return {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": access.ca,
    }


def test_plain_text_to_a_listener_with_tls(secured: SecuredBroker) -> None:
    (found,) = examine(secured.access("EXPIRED").address)
    assert "the listener speaks TLS, and this client does not" in found["found"]


def test_tls_to_a_listener_without(secured: SecuredBroker, properties: Callable[..., str]) -> None:
    config = properties(**trusting(secured))
    (found,) = examine(secured.access("PLAINTEXT").address, "--config", config)
    assert "the listener speaks plain text, and this client speaks TLS" in found["found"]


@pytest.mark.parametrize(
    ("listener", "word"),
    [
        ("EXPIRED", "certificate has expired"),
        ("FUTURE", "certificate is not valid yet"),
        ("ELSEWHERE", "certificate is for another name"),
    ],
)
def test_certificates(
    secured: SecuredBroker, properties: Callable[..., str], listener: str, word: str
) -> None:
    config = properties(**trusting(secured))
    (found,) = examine(secured.access(listener).address, "--config", config)
    assert found["check"] == "certificate"
    assert word in found["found"]


def test_an_authority_that_is_not_trusted(
    secured: SecuredBroker, properties: Callable[..., str]
) -> None:
    settings = trusting(secured) | {"ssl_truststore_location": secured.other_ca}
    (found,) = examine(secured.access("SSL").address, "--config", properties(**settings))
    assert "an authority that is not trusted here" in found["found"]


def test_a_client_without_certificate(
    secured: SecuredBroker, properties: Callable[..., str]
) -> None:
    config = properties(**trusting(secured))
    (found,) = examine(secured.access("SSL").address, "--config", config)
    assert "does not accept this client's certificate, or wants one" in found["found"]


@pytest.mark.parametrize(
    ("mechanism", "password", "word"),
    [
        ("PLAIN", "wrong", "does not accept who this client says it is"),
        ("GSSAPI", PASSWORD, "mechanism"),
        ("PLAIN", PASSWORD, ""),
    ],
)
def test_logins(
    secured: SecuredBroker, properties: Callable[..., str], mechanism: str, password: str, word: str
) -> None:
    config = properties(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_jaas_config=f'{_PLAIN} username="{USER}" password="{password}";',
    )
    servers = secured.access("SASL_PLAINTEXT").address
    if not word:
        assert not examine(servers, "--config", config, status=0)
    elif mechanism == "PLAIN":
        (found,) = examine(servers, "--config", config)
        assert found["check"] == "login"
        assert word in found["found"]
    else:
        ended = run("doctor", "--config", config, bootstrap=servers)
        assert ended.status != 0
        assert word in ended.everything


def test_a_listener_that_wants_a_login(secured: SecuredBroker) -> None:
    (found,) = examine(secured.access("SASL_PLAINTEXT").address)
    assert found["check"] == "protocol"
    assert "SASL" in found["remedy"]
