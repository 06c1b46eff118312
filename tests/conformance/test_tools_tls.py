"""Apache's tools over a listener with TLS: with a certificate and without, and how they fail."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.conformance.tls_broker import TlsBroker, tls_broker
from tests.security.certificates import Authority, key_store, trust_store

CA = Authority()
STORES = ["PEM", "PKCS12", "JKS"]


@pytest.fixture(scope="module", params=["none", "required"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsBroker]:
    """A node whose listener wants certificates of its clients, or does not."""
    config = {"ssl.client.auth": request.param}
    made = tls_broker(tmp_path_factory.mktemp("tls"), CA, "JKS")
    made.config |= config
    with made:
        yield made


@pytest.fixture
def tls(broker: TlsBroker, tool_runner: ToolRunner) -> KafkaTools:
    """The tools, pointed at the listener with TLS."""
    return KafkaTools(broker.bootstrap, tool_runner)


def certificate(folder: Path, kind: str = "PEM", name: str = "client") -> dict[str, str]:
    """A client's certificate and the ones it trusts, in stores of a kind."""
    return key_store(folder, CA.client("alice"), kind, name=f"{name}-own") | trust_store(
        folder, CA, kind=kind, name=f"{name}-ca"
    )


@pytest.mark.parametrize("kind", STORES)
def test_console_tools(
    broker: TlsBroker, tls: KafkaTools, kind: str, tmp_path: Path, tool_runner: ToolRunner
) -> None:
    """Create, produce, consume in a group, and describe it: all over TLS."""
    config = ["--command-config", broker.client_file(certificate(tmp_path, kind), f"c-{kind}")]
    topic, group = f"tls-{kind.lower()}", f"group-{kind.lower()}"
    tls.run("kafka-topics", *config, "--create", "--topic", topic, "--partitions", "3")
    lines = [f"record {number}" for number in range(500)] + ["x" * 300_000]
    tls.produce(topic, lines, *config)
    found = tls.consume(topic, "--group", group, *config, "--from-beginning", count=len(lines))
    assert sorted(found) == sorted(lines)
    described = tls.run("kafka-consumer-groups", *config, "--describe", "--group", group)
    assert sum(int(row["CURRENT-OFFSET"]) for row in described.rows("GROUP")) == len(lines)


def test_perf_tools(broker: TlsBroker, tls: KafkaTools, tmp_path: Path) -> None:
    """Many batches in both directions, larger than a record of TLS."""
    config = broker.client_file(certificate(tmp_path), "perf")
    tls.run("kafka-topics", "--command-config", config, "--create", "--topic", "tls-perf")
    sent = tls.run(
        "kafka-producer-perf-test", "--topic", "tls-perf", "--num-records", "20000",
        "--record-size", "1024", "--throughput", "-1", "--command-config", config,
    )  # fmt: skip
    assert "20000 records sent" in sent.output
    read = tls.run(
        "kafka-consumer-perf-test", "--topic", "tls-perf", "--num-records", "20000",
        "--command-config", config,
    )  # fmt: skip
    assert "20000" in read.output.replace(",", "")


def failure_of(tls: KafkaTools, config: str) -> str:
    """What kafka-topics says of a connection that is refused."""
    done = tls.run("kafka-topics", "--command-config", config, "--list", check=False)
    assert done.exit_code == 1
    return done.output


REFUSED = ["unknown authority", "no trust", "wrong certificate"]


@pytest.mark.parametrize("fault", REFUSED)
def test_who_is_refused(broker: TlsBroker, tls: KafkaTools, fault: str, tmp_path: Path) -> None:
    """With the exception that Java has for it: not tried again."""
    other = Authority("Other CA")
    believed = CA if fault == "wrong certificate" else other
    properties = trust_store(tmp_path, believed)
    if fault != "no trust":
        properties |= key_store(tmp_path, other.client("mallory"))
    config = broker.client_file(properties, "refused")
    if fault == "wrong certificate" and broker.config["ssl.client.auth"] == "none":
        tls.run("kafka-topics", "--command-config", config, "--list")
        return
    assert "SslAuthenticationException" in failure_of(tls, config)


def test_without_a_certificate(broker: TlsBroker, tls: KafkaTools, tmp_path: Path) -> None:
    config = broker.client_file(trust_store(tmp_path, CA), "nameless")
    if broker.config["ssl.client.auth"] == "none":
        tls.run("kafka-topics", "--command-config", config, "--list")
    else:
        assert "SslAuthenticationException" in failure_of(tls, config)


def serial(broker: TlsBroker) -> int:
    """The number of the certificate that the listener shows."""
    context = ssl._create_unverified_context()
    with (
        socket.create_connection(broker.tls_address, 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        shown = sock.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def test_key_stores_are_changed_by_kafka_configs(
    broker: TlsBroker, tool_runner: ToolRunner, tmp_path: Path
) -> None:
    """Another file, the same file with another certificate; a bad one is refused."""
    plain = KafkaTools(broker.address, tool_runner)
    target = ["--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config"]
    password = broker.config["ssl.keystore.password"]
    folder = broker.directory
    before = serial(broker)
    seen = [before]
    for name in ("second", "second"):
        new = key_store(folder, CA.server(), "JKS", name=name)
        location = new["ssl.keystore.location"]
        texts = f"listener.name.ssl.ssl.keystore.location={location},"
        texts += f"listener.name.ssl.ssl.keystore.password={password}"
        plain.run("kafka-configs", *target, texts)
        deadline = time.monotonic() + 20
        while serial(broker) in seen:
            assert time.monotonic() < deadline, "it goes on with the certificate before"
            time.sleep(0.1)
        seen.append(serial(broker))
    for bad in ("/none", key_store(folder, Authority("X").server("x"), "JKS", name="x")):
        location = bad if isinstance(bad, str) else bad["ssl.keystore.location"]
        done = plain.run(
            "kafka-configs", *target, f"listener.name.ssl.ssl.keystore.location={location}",
            check=False,
        )  # fmt: skip
        assert done.exit_code == 1, done.describe()
        assert "InvalidRequestException" in done.output
    assert serial(broker) == seen[-1]
    shown = plain.run("kafka-configs", "--describe", "--entity-type", "brokers",
                      "--entity-name", "1")  # fmt: skip
    assert "listener.name.ssl.ssl.keystore.location=" in shown.output
    assert password not in shown.output


def test_plaintext_client_at_tls_and_the_reverse(
    broker: TlsBroker, tls: KafkaTools, tool_runner: ToolRunner, tmp_path: Path
) -> None:
    """Neither gets in; what they print is that nobody answers."""
    config = tmp_path / "plain.properties"
    config.write_text("default.api.timeout.ms=4000\nrequest.timeout.ms=3000\n")
    assert "TimeoutException" in failure_of(tls, str(config))
    reverse = broker.client_file(
        {
            **certificate(tmp_path),
            "default.api.timeout.ms": "4000",
            "request.timeout.ms": "3000",
        },
        "reverse",
    )
    said = failure_of(KafkaTools(broker.address, tool_runner), reverse)
    assert "TimeoutException" in said or "SslAuthenticationException" in said
