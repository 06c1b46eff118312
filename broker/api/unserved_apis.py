"""The APIs that the wire knows and this software does not serve yet, each with the reason.

What `wire/protocol/api.py` declares for a listener is served there, advertised (KIP-35) and
answered, or it stands here; a test holds both together. A request for one of these ends the
connection, as in Apache Kafka, with the reason in the log. Clients that respect what is advertised
never send one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kraftrio.wire.protocol.api import ApiKey

UNSERVED_BY_BROKERS: Final[Mapping[ApiKey, str]] = MappingProxyType(
    {
        ApiKey.PUSH_TELEMETRY: "without metrics.listener there is no receiver of client metrics",
    }
)

UNSERVED_BY_CONTROLLERS: Final[Mapping[ApiKey, str]] = MappingProxyType(
    {
        ApiKey.CONTROLLER_REGISTRATION: "the voters are those of controller.quorum.voters",
    }
)
