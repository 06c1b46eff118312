"""How a client gets in, in the settings of each library."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
MECHANISMS = tuple(_MODULES)


@dataclass(frozen=True)
class Access:
    """See the module.

    Attributes:
        address: HOST:PORT of the listener.
        ca: a PEM file with the trusted certificates.
        identity: a PEM file with a private key and its certificates; None: none is shown.
    """

    address: str
    protocol: str
    ca: Path
    identity: Path | None = None
    mechanism: str = ""
    user: str = ""
    password: str = ""

    def but(self, **changes: object) -> Access:
        """Return the same with something else."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def token(self) -> str:
        """An unsecured token for the user (RFC 7515, appendix A.5)."""
        now = int(time.time())
        parts = ({"alg": "none"}, {"sub": self.user, "iat": now, "exp": now + 3600})
        texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
        return b".".join(texts).decode() + "."

    def java(self) -> dict[str, str]:
        """Return the properties of Java's clients, and of kraftrio's by the same names."""
        properties = {"security.protocol": self.protocol}
        if self.uses_tls:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
            if self.identity is not None:
                properties["ssl.keystore.type"] = "PEM"
                properties["ssl.keystore.location"] = str(self.identity)
        if self.uses_sasl:
            properties["sasl.mechanism"] = self.mechanism
            options = f'username="{self.user}" password="{self.password}"'
            if self.mechanism == "OAUTHBEARER":
                options = f'unsecuredLoginStringClaim_sub="{self.user}"'
            properties["sasl.jaas.config"] = f"{_MODULES[self.mechanism]} required {options};"
        return properties

    def librdkafka(self) -> dict[str, str]:
        """Return the properties of librdkafka, the address among them."""
        properties = {"bootstrap.servers": self.address, "security.protocol": self.protocol.lower()}
        if self.uses_tls:
            properties["ssl.ca.location"] = str(self.ca)
            if self.identity is not None:
                properties["ssl.key.location"] = str(self.identity)
                properties["ssl.certificate.location"] = str(self.identity)
        if self.uses_sasl:
            properties["sasl.mechanism"] = self.mechanism
            if self.mechanism == "OAUTHBEARER":
                properties["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
                properties["sasl.oauthbearer.config"] = f"principal={self.user}"
            else:
                properties["sasl.username"] = self.user
                properties["sasl.password"] = self.password
        return properties

    def environment(self) -> dict[str, str]:
        """Return what the drivers in other languages read."""
        access = {
            "protocol": self.protocol,
            "ca": str(self.ca),
            "identity": "" if self.identity is None else str(self.identity),
            "mechanism": self.mechanism,
            "user": self.user,
            "password": self.password,
            "token": self.token,
        }
        return {"KAFKA_ACCESS": json.dumps(access)}
