"""How a listener is secured is a value, without its secrets where it is shown."""

from __future__ import annotations

from kraftrio.broker.security.listener_security import ListenerSecurity
from kraftrio.net.security_protocol import SecurityProtocol
from kraftrio.net.tls.settings import TlsSettings


def test_it_shows_no_secret() -> None:
    properties = {"ssl.keystore.location": "/k.jks", "ssl.keystore.password": "s3cret"}
    tls = TlsSettings.from_properties(properties)
    security = ListenerSecurity("OUTSIDE", SecurityProtocol.SSL, tls)
    assert "s3cret" not in repr(security)
    assert security == ListenerSecurity("OUTSIDE", SecurityProtocol.SSL, tls)
