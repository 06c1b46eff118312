"""Producing and consuming 1 KB records over TLS, beside the same without.

Called by `bench.py --tls`. Both brokers get the same key store (PEM, P-256), and Apache's perf
tools use the listener SSL and then PLAINTEXT; consuming is read three times, from the page cache.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from bench import Metrics, RunningBroker, consume, free_ports, last_rate, running, tool
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

RECORDS = 500_000
RECORD_BYTES = 1000
PROPERTIES = ("acks=all", "linger.ms=5", "batch.size=65536")
_TURNS = 3
_HOST = "127.0.0.1"


def measure_tls(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one broker."""
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as folder:
        key_store, certificate = write_stores(Path(folder))
        port = free_ports(1)
        listeners = f"PLAINTEXT://{_HOST}:{{port}},SSL://{_HOST}:{port}"
        settings = [
            f"listeners={listeners}",
            f"advertised.listeners={listeners}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={key_store}",
        ]
        if kind == "apache":
            settings[0] += f",CONTROLLER://{_HOST}:{{controller}}"
        client = [
            "security.protocol=SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={certificate}",
        ]
        config = Path(folder, "client.properties")
        config.write_text("\n".join(client))
        with running(kind, metrics, settings) as broker:
            plain = broker.address
            broker.address = f"{_HOST}:{port}"
            measure_transfer(broker, "TLS", ("--command-config", str(config)), scale, metrics)
            broker.address = plain
            measure_transfer(broker, "plain", (), scale, metrics)


def measure_transfer(
    broker: RunningBroker, name: str, config: Sequence[str], scale: float, metrics: Metrics
) -> None:
    """Fill a topic and read it again."""
    topic, records = f"bench-{name.lower()}", int(RECORDS * scale)
    gigabytes = records * RECORD_BYTES / 1e9
    address = ("--bootstrap-server", broker.address)
    tool("kafka-topics", *address, *config, "--create", "--topic", topic, "--partitions", "1")
    before_s = broker.cpu_s()
    output = tool(
        *("kafka-producer-perf-test", "--topic", topic, "--num-records", str(records), *config),
        *("--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.address}", *PROPERTIES),
    )
    metrics.add(f"produce 1 KB {name}, records/s", last_rate(output))
    cost = (broker.cpu_s() - before_s) / gigabytes
    metrics.add(f"produce 1 KB {name}, broker CPU s/GB", cost)
    turns = [consume(broker, topic, records, *config) for _ in range(_TURNS)]
    rate = statistics.median(rate for rate, _ in turns)
    metrics.add(f"consume 1 KB {name}, records/s", rate)
    cost = statistics.median(cpu_s for _, cpu_s in turns) / gigabytes
    metrics.add(f"consume 1 KB {name}, broker CPU s/GB", cost)


def write_stores(folder: Path) -> tuple[Path, Path]:
    """Write a key with a certificate that signs itself, and the certificate alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name.from_rfc4514_string("CN=localhost")
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(_HOST))]), False)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)
    key_store, trusted = folder / "keystore.pem", folder / "truststore.pem"
    key_store.touch(mode=0o600)
    key_store.write_bytes(key_pem + certificate_pem)
    trusted.write_bytes(certificate_pem)
    return key_store, trusted
