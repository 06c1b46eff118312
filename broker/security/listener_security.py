"""How one listener is secured: its protocol, and the settings of TLS and of logins that go with it.

Owns: `ListenerSecurity`, a value. Made by `node` from the configuration; the same value describes
how this node dials others over such a listener.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftrio.net.security_protocol import SecurityProtocol
from kraftrio.net.tls.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """See the module.

    Attributes:
        name: the listener's.
        tls: None where the protocol has none.
    """

    name: str
    protocol: SecurityProtocol
    tls: TlsSettings | None = None
