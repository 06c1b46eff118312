"""What protects a connection: Kafka's four security protocols, of listeners and of clients."""

from __future__ import annotations

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """Named as in `security.protocol`; the numbers are those of registrations of listeners."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        """Whether the bytes are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
