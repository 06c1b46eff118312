"""A broker with a listener for each way to get in, and for each way to be refused.

`SecuredBroker` starts the broker that TEST_BROKER names. Its main listener is PLAINTEXT, over which
users get their passwords. The listeners with other certificates differ in nothing else from SSL.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path

import trio

from kraftrio import Admin
from kraftrio.clients.admin.security.scram_users import ScramMechanism, ScramPassword
from tests.conformance.broker_process import KIND, ApacheBroker, Broker
from tests.conformance.secured.access import MECHANISMS, Access
from tests.security.certificates import Authority, key_store, trust_store, write_private

USER = "alice"
PASSWORD = "alice-secret"
_HOST = "localhost"
_PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",  # Apache's is one above the first listener
    "SSL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "EXPIRED": "SSL",
    "FUTURE": "SSL",
    "ELSEWHERE": "SSL",
}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_BEARER = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="broker";'
)


class SecuredBroker:
    """See the module; use it as a context manager.

    Args:
        authorizer: whether ACLs decide what users may do; clients in plaintext may do everything.
    """

    def __init__(self, folder: Path, *, authorizer: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        authority, stranger = Authority(), Authority("Nobody's CA")
        self._ca = Path(trust_store(folder, authority)["ssl.truststore.location"])
        self.other_ca = Path(
            trust_store(folder, stranger, name="stranger")["ssl.truststore.location"]
        )
        self._identity = self._store(authority.client(USER), "client")
        self.stranger = self._store(stranger.client(USER), "stranger-client")
        self._ports = dict(zip(_PROTOCOLS, free_ports(len(_PROTOCOLS)), strict=True))
        kind = {"kraftrio": Broker, "apache": ApacheBroker}[KIND]
        settings = self._settings(authority)
        self.broker = kind(folder / "broker")
        self.broker.config |= settings
        if authorizer:
            self.broker.config["authorizer.class.name"] = _AUTHORIZER
            self.broker.config["super.users"] = "User:ANONYMOUS"
            self.broker.config["delegation.token.secret.key"] = "secret of tokens"
        self.broker.host, self.broker.port = _HOST, self._ports["PLAINTEXT"]

    def _store(self, identity: object, name: str) -> Path:
        text = identity.key_pem() + identity.chain_pem()  # type: ignore[attr-defined]
        return write_private(self._folder / f"{name}.pem", text)

    def _settings(self, authority: Authority) -> dict[str, str]:
        folder = self._folder
        own = key_store(folder, authority.server())
        settings = {
            "listeners": self._listeners(),
            "advertised.listeners": self._listeners(but="CONTROLLER"),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{_HOST}:{self._ports['CONTROLLER']}",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in _PROTOCOLS.items()
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            **own,
            **trust_store(folder, authority),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "delegation.token.secret.key": "a key of all nodes",
        }
        for name, identity in (
            ("expired", authority.expired()),
            ("future", authority.not_yet_valid()),
            ("elsewhere", authority.wrong_host()),
        ):
            for setting, value in key_store(folder, identity, name=name).items():
                settings[f"listener.name.{name}.{setting}"] = value
        for name in ("sasl_ssl", "sasl_plaintext"):
            prefix = f"listener.name.{name}"
            plain = f'{_PLAIN} username="x" password="x" user_{USER}="{PASSWORD}";'
            settings[f"{prefix}.plain.sasl.jaas.config"] = plain
            settings[f"{prefix}.scram-sha-256.sasl.jaas.config"] = _SCRAM
            settings[f"{prefix}.scram-sha-512.sasl.jaas.config"] = _SCRAM
            settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = _BEARER
        return settings

    def _listeners(self, but: str = "") -> str:
        return ",".join(
            f"{name}://{_HOST}:{port}" for name, port in self._ports.items() if name != but
        )

    # -- ways in --------------------------------------------------------------------------------

    def access(self, listener: str, mechanism: str = "") -> Access:
        """Return how a client gets in at a listener as it should."""
        protocol = _PROTOCOLS[listener]
        return Access(
            f"{_HOST}:{self._ports[listener]}",
            protocol,
            self._ca,
            self._identity if protocol == "SSL" else None,
            mechanism,
            USER if mechanism else "",
            PASSWORD if mechanism else "",
        )

    def port(self, listener: str) -> int:
        """Return where a listener listens."""
        return self._ports[listener]

    def __enter__(self) -> SecuredBroker:
        self.broker.start()
        try:
            trio.run(self._add_user)
        except BaseException:
            self.broker.kill9()
            raise
        return self

    async def _add_user(self) -> None:
        async with Admin(self.broker.address) as admin:
            for mechanism in ScramMechanism:
                await admin.scram_users.alter([ScramPassword(USER, PASSWORD, mechanism)])

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.broker.close()
        else:
            self.broker.kill9()


def free_ports(count: int) -> Sequence[int]:
    """Return neighbouring ports that are free."""
    for first in random.sample(range(12_000, 32_000, 16), 100):
        ports = range(first, first + count)
        if all(_is_free(port) for port in ports):
            return ports
    raise AssertionError("no neighbouring ports are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
