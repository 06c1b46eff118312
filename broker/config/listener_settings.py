"""Names of settings with a listener prefix: `listener.name.<listener>.<setting>`.

Rules (Kafka's)
- Before the setting's own name may stand a SASL mechanism, where the setting is one of a mechanism
  (`listener.name.sasl_plain.plain.sasl.jaas.config`).
- Such a name has the type, the allowed values and the secrecy of the setting it is about; one about
  nothing that is known is an unknown name.
- For all brokers by the default resource only those of `CLUSTER_WIDE` can be set.
- Where clients log in by SASL they show a certificate only if the listener's own `ssl.client.auth`
  says so: that of all listeners is for those that know clients by certificates alone (KIP-684).
- Key and trust stores are changed while a broker runs by such names alone (`WITH_PREFIX_ONLY`).

Pure. Called by `dynamic_config`, `config/describe` and whatever secures a listener.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol

_PREFIXED: Final = re.compile(r"listener\.name\.[^.]*\.(.*)\Z", re.DOTALL)

_OF_A_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)

CLUSTER_WIDE: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)

WITH_PREFIX_ONLY: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)


class _Settings(Protocol):
    originals: dict[str, str]
    listener_security_protocol_map: dict[str, str]


def settings_of(config: _Settings, listener_name: str) -> Mapping[str, str]:
    """Return the settings that were set, as they are for one listener.

    What has the listener's prefix stands without it, in the place of the setting of all listeners;
    the name of a SASL mechanism stays before its settings.
    """
    prefix = prefix_of(listener_name)
    of_all = dict(config.originals)
    if config.listener_security_protocol_map.get(listener_name.upper()) == "SASL_SSL":
        of_all.pop("ssl.client.auth", None)
    return {
        **of_all,
        **{
            name.removeprefix(prefix): text
            for name, text in config.originals.items()
            if name.startswith(prefix)
        },
    }


def prefix_of(listener_name: str) -> str:
    """Return what the names of a listener's own settings begin with."""
    return f"listener.name.{listener_name.lower()}."


def setting_of(name: str) -> str | None:
    """Return the setting that a name with a listener prefix is about; None: it has no prefix."""
    match = _PREFIXED.match(name)
    if match is None:
        return None
    rest: str = match[1]
    return next((one for one in _OF_A_MECHANISM if rest.endswith(one)), rest)
