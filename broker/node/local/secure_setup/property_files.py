"""The texts of property files: what a secured node is started with, and what its clients take.

Owns: the properties of the listeners of a secured node, of the files for Apache's tools, and of
those for librdkafka. Rules:
1. A node has three ports: SASL_SSL for clients with a password, one above it its controller's, and
   above that SSL, for other nodes and for clients with certificates.
2. A certificate's principal is its CN, so that the administrator is the same user by certificate
   as by password. Nodes and the administrator are super users; for all others ACLs decide.
3. Apache Kafka starts with the same file.

Pure. Called by: `secure_setup/files`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftrio.broker.config.attributes import address_text
from kraftrio.wire.sasl.scram_keys import MIN_ITERATIONS, ScramMechanism, salted_password

PORTS_PER_NODE: Final = 3
NODE_USER: Final = "kraftrio-node"
MECHANISM: Final = "SCRAM-SHA-512"

_CLIENTS: Final = "SASL_SSL"
_CERTIFICATES: Final = "SSL"
_CONTROLLER: Final = "CONTROLLER"
_JAAS_PREFIX: Final = f"listener.name.{_CLIENTS.lower()}.{MECHANISM.lower()}"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node is reached, and where it listens.

    Attributes:
        host: the name or address that clients and nodes reach it by.
        port: of the listener SASL_SSL; the others are above it.
        listen_host: empty: every address of the machine.
        other_hosts: further names that its certificate is for.
    """

    host: str
    port: int
    listen_host: str
    other_hosts: tuple[str, ...] = ()

    @property
    def controller_port(self) -> int:
        """Of the listener of the controller."""
        return self.port + 1

    @property
    def certificate_port(self) -> int:
        """Of the listener SSL."""
        return self.port + 2

    @property
    def for_passwords(self) -> str:
        """The bootstrap address of clients with a password."""
        return address_text(self.host, self.port)

    @property
    def for_certificates(self) -> str:
        """The bootstrap address of clients with a certificate."""
        return address_text(self.host, self.certificate_port)


def listener_properties(
    address: NodeAddress, key_store: str, trust_store: str, first_users: str, super_user: str
) -> dict[str, str]:
    """Return what makes a node's listeners secure, and who may do everything.

    Args:
        key_store: the file with the node's key and certificates.
        trust_store: the file with the certificate of the authority.
        first_users: the file with the users of a new cluster.
    """
    listen = {
        _CLIENTS: address.port,
        _CERTIFICATES: address.certificate_port,
        _CONTROLLER: address.controller_port,
    }
    return {
        "listeners": ",".join(
            f"{name}://{address_text(address.listen_host, port)}" for name, port in listen.items()
        ),
        "advertised.listeners": ",".join(
            f"{name}://{address_text(address.host, listen[name])}"
            for name in (_CLIENTS, _CERTIFICATES)
        ),
        "controller.listener.names": _CONTROLLER,
        "inter.broker.listener.name": _CERTIFICATES,
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust_store,
        # Named: without a listener it may once count for SASL_SSL, as Apache Kafka warns.
        f"listener.name.{_CERTIFICATES.lower()}.ssl.client.auth": "required",
        f"listener.name.{_CONTROLLER.lower()}.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": MECHANISM,
        "kraftrio.first.users.file": first_users,
        f"{_JAAS_PREFIX}.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{NODE_USER};User:{super_user}",
    }


def password_client(bootstrap: str, trust_store: str, user: str, password: str) -> dict[str, str]:
    """Return what a Java client needs to log in with a password."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust_store,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_SCRAM_MODULE} required username="{user}" password="{password}";',
    }


def certificate_client(bootstrap: str, trust_store: str, key_store: str) -> dict[str, str]:
    """Return what a Java client needs to show its certificate."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust_store,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_store,
    }


def librdkafka_password_client(
    bootstrap: str, trust_store: str, user: str, password: str
) -> dict[str, str]:
    """Return what librdkafka needs to log in with a password."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": trust_store,
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
    }


def librdkafka_certificate_client(
    bootstrap: str, trust_store: str, key_store: str
) -> dict[str, str]:
    """Return what librdkafka needs to show its certificate."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": trust_store,
        "ssl.certificate.location": key_store,
        "ssl.key.location": key_store,
    }


def first_user_text(user: str, password: str, salt: bytes) -> str:
    """Write a user as `kraftrio start --add-scram` takes it, the password salted."""
    mechanism = ScramMechanism.of_name(MECHANISM)
    assert mechanism is not None
    salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
    fields = (
        f"name={user}",
        f"iterations={MIN_ITERATIONS}",
        f'salt="{b64encode(salt).decode()}"',
        f'saltedpassword="{b64encode(salted).decode()}"',
    )
    return f"{MECHANISM}=[{','.join(fields)}]\n"


def properties_text(properties: Mapping[str, str]) -> str:
    """Write properties as java.util.Properties reads them: Latin-1, the rest escaped."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def librdkafka_text(properties: Mapping[str, str]) -> str:
    """Write properties as kcat reads them: as they are."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    shown = value.replace("\\", "\\\\")
    units = memoryview(shown.encode("utf-16-be")).cast("B")
    codes = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
