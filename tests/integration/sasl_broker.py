"""A broker whose clients log in: by PLAIN, SCRAM, and tokens signed by a provider's key."""

from __future__ import annotations

import json
import random
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from kraftrio.base.threads import run_in_worker_thread
from kraftrio.net.connection import Connection, open_connection
from kraftrio.net.sasl.credentials import client_credentials
from kraftrio.net.sasl.login import SaslLogin
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.transport import SystemNetwork
from tests.conformance.broker_process import Broker

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PREFIX = "listener.name.sasl_plaintext."


class SaslBroker(Broker):
    """See the module: admin's password is admin-secret (PLAIN), alice's alice-secret (SCRAM)."""

    def __init__(self, directory: Path, **config: object) -> None:
        super().__init__(directory, **config)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.jwks = directory / "keys.json"

    def command(self) -> list[str]:
        self.write_keys()
        settings = {
            "listeners": f"SASL_PLAINTEXT://{self.host}:{self.port}",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{PREFIX}plain.sasl.jaas.config": f"{PLAIN_MODULE} required username=admin"
            ' password="admin-secret" user_admin="admin-secret";',
            "sasl.oauthbearer.jwks.endpoint.url": self.jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "log.dirs": str(self.data_directory),
            **self.config,
        }
        command = self.python_command()
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            command += ["--add-scram", f"{mechanism}=[name=alice,password=alice-secret]"]
        return command

    def write_keys(self) -> None:
        """Write the provider's keys."""
        self.directory.mkdir(parents=True, exist_ok=True)
        numbers = self.key.public_key().public_numbers()
        x, y = (_text(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
        entry = {"kty": "EC", "crv": "P-256", "kid": "k", "x": x, "y": y}
        self.jwks.write_text(json.dumps({"keys": [entry]}))

    def token(self, **claims: Any) -> str:
        """A token that the provider signed."""
        now_s = int(time.time())
        all_claims = {"sub": "dave", "iat": now_s, "exp": now_s + 600, "aud": "kafka"} | claims
        header = _text(json.dumps({"alg": "ES256", "kid": "k"}).encode())
        text = f"{header}.{_text(json.dumps(all_claims).encode())}"
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_text(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    @asynccontextmanager
    async def connection(self, settings: Mapping[str, str]) -> AsyncIterator[Connection]:
        """A connection that logs in by a Java client's settings."""
        rng = random.SystemRandom()
        credentials = client_credentials(settings, rng, lambda: int(time.time() * 1000))
        login = SaslLogin(credentials, run_in_worker_thread, rng, "test")
        async with open_connection(
            SecuredNetwork(SystemNetwork(), login=login),
            self.host,
            self.port,
            client_id="test",
            connect_timeout_s=20,
        ) as made:
            yield made


def plain(user: str, password: str) -> dict[str, str]:
    """The settings of a client that logs in by PLAIN."""
    jaas = f'{PLAIN_MODULE} required username="{user}" password="{password}";'
    return {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def scram(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    """The settings of a client that logs in by SCRAM."""
    jaas = f'{SCRAM_MODULE} required username="{user}" password="{password}";'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
