"""The console of a node: what `console.listener` stands for, served in the node's process.

Owns `make_console`, which opens the socket before the node starts, so that a port in use is
reported at once, and returns what the node runs beside its broker. It is a client of the node's own
listener: what clients may not do, it may not do either.

Called by: `node`, where the setting is made; nothing of the console is imported elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from kraftrio.base.exception_groups import innermost
from kraftrio.base.start_errors import StartError, reason
from kraftrio.broker.config.attributes import HostPort, address_text
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.node.node import Companion
from kraftrio.clients.cli.connect import DEFAULT_SERVERS, TargetCluster, read_properties
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.console.extra import import_server
from kraftrio.clients.console.settings import ConsoleSettings
from kraftrio.wire.errors import KafkaError

_log = logging.getLogger("kraftrio.console")

_PLAIN = "PLAINTEXT"


def make_console(config: BrokerConfig, address: HostPort) -> Companion:
    """Return the console of a node.

    Raises:
        StartError: it cannot be served; says which setting is the matter.
    """
    try:
        server = import_server()
        file = config.console_client_config
        properties = read_properties(file) if file else {}
        settings = ConsoleSettings(
            TargetCluster(DEFAULT_SERVERS, properties),
            config.console_writable,
            frozenset({address.host, *config.console_allowed_hosts}),
        )
        settings.check()
        server.prepare()
    except (CommandError, KafkaError) as error:
        raise StartError(f"console.listener: {error}") from None
    protocol = properties.get("security.protocol", _PLAIN).strip().upper()
    known = [listener.protocol for listener in config.listeners]
    own_servers = properties.get("bootstrap.servers", "").strip()
    if not own_servers and protocol not in known:
        raise StartError(
            f"console.listener: no listener has the protocol {protocol}, but"
            f" {', '.join(dict.fromkeys(known))}: name a client's properties file in"
            " console.client.config"
        )
    try:
        sock = server.listen(*address)
    except OSError as error:
        raise StartError(
            f"console.listener: cannot listen on {address_text(*address)}: {reason(error)}"
        ) from None

    async def serve(addresses: Mapping[str, str]) -> None:
        target = TargetCluster(own_servers or addresses[protocol], properties)
        _log.info(
            "console served url=%s writable=%s",
            server.url_of(address.host, sock),
            str(settings.is_writable).lower(),
        )
        try:
            await server.serve(replace(settings, target=target), sock)
        except* (KafkaError, OSError) as group:
            _log.warning("console cannot be served reason=%s", reason(innermost(group)))

    return serve
