"""How a node's listeners are secured, and how it dials others: built from its settings.

Owns: `NodeSecurity`: for each listener with TLS what it presents and trusts, kept up to date while
the node runs; for each with SASL its logins (`logins`). Rules
1. A listener's own settings (`listener.name.<name>.ssl...`) come before those of all. Other nodes
   are dialled with the settings of the listener at which they are dialled, as in Kafka.
2. Key stores and trust stores are read again when their settings change (kafka-configs) and when a
   file changes: within `RENEWAL_S`, without a connection lost. What cannot be used, or is of
   somebody else (`net/tls/renewal`), changes nothing, and is logged once.
3. What cannot be used at the start ends it, with one sentence.
4. What reads certificates (`tls_listener`) takes 15 MB: a node without TLS does not load it.

Called by: `node`, which hands networks and admissions to the parts that need them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.config.listener_settings import prefix_of, settings_of
from kraftrio.broker.config.types import PropertyError
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.security.logins import (
    CONTROLLER_MECHANISM,
    INTER_BROKER_MECHANISM,
    NodeLogins,
)
from kraftrio.broker.security.listener_security import ListenerSecurity
from kraftrio.broker.security.sasl.settings import ListenerSasl
from kraftrio.broker.server.admission.admission import Admission, AdmissionSteps
from kraftrio.broker.server.admission.sasl_admission import SaslAdmission
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.security_protocol import SecurityProtocol
from kraftrio.net.tls.settings import TlsSettings, TlsSettingsError
from kraftrio.net.transport import Network

if TYPE_CHECKING:
    from kraftrio.broker.node.security.tls_listener import TlsListener
    from kraftrio.net.tls.identity import TlsContexts

_log = logging.getLogger("kraftrio.node")

RENEWAL_S: Final = 5.0
CLIENT_AUTH: Final = "ssl.client.auth"


def protocol_of(config: BrokerConfig, name: str) -> SecurityProtocol:
    """What protects a listener, this node's or another's."""
    return SecurityProtocol[config.listener_security_protocol_map.get(name, "PLAINTEXT")]


def listener_security(config: BrokerConfig, name: str) -> ListenerSecurity:
    """What the settings say of a listener, this node's or another's.

    Raises:
        TlsSettingsError: they do not fit together.
    """
    protocol = protocol_of(config, name)
    return ListenerSecurity(
        name, protocol, tls_settings(config, name) if protocol.uses_tls else None
    )


def tls_settings(config: BrokerConfig, name: str) -> TlsSettings:
    """What the settings say of TLS at a listener.

    Where clients log in, they show certificates only if that listener itself wants them, as in
    Kafka (KIP-684): `ssl.client.auth` of all listeners is about those without a login.

    Raises:
        TlsSettingsError: they do not fit together.
    """
    settings = dict(settings_of(config, name))
    if protocol_of(config, name).uses_sasl:
        settings[CLIENT_AUTH] = config.originals.get(prefix_of(name) + CLIENT_AUTH, "none")
    return TlsSettings.from_properties(settings)


class NodeSecurity:
    """See the module.

    Attributes:
        brokers: how this node dials brokers.
        controllers: how it dials controllers.

    Raises:
        StartError: a listener's settings cannot be used.
    """

    def __init__(self, dynamic: DynamicConfig, environment: Environment) -> None:
        config = dynamic.static
        self._dynamic = dynamic
        self._environment = environment
        self._wake = trio.Event()
        self._logins = NodeLogins(config, environment)
        self._sasl: dict[str, ListenerSasl] = {}
        own = [one.name for one in config.listeners]
        controllers = config.controller_listener_names[:1]
        dialled = {*controllers, config.inter_broker_listener_name}
        self._listeners: dict[str, TlsListener] = {}
        for name in dict.fromkeys([*own, *sorted(dialled)]):
            self._add(config, name, is_own=name in own)
        self.brokers = self._network_to(
            config.inter_broker_listener_name if config.is_broker else None, INTER_BROKER_MECHANISM
        )
        self.controllers = self._network_to(next(iter(controllers), None), CONTROLLER_MECHANISM)
        dynamic.add_check(self._check)
        dynamic.subscribe(lambda _config: self._wake.set())

    def _add(self, config: BrokerConfig, name: str, *, is_own: bool) -> None:
        try:
            security = listener_security(config, name)
            if security.protocol.uses_sasl and is_own:
                self._sasl[name] = self._logins.listener(name)
            if security.tls is not None:
                from kraftrio.broker.node.security.tls_listener import TlsListener

                self._listeners[name] = TlsListener(config, security.tls, name, is_own=is_own)
        except TlsSettingsError as error:
            raise StartError(f"listener {name}: {error}") from error

    def _network_to(self, name: str | None, mechanism_setting: str) -> Network:
        """The network that dials others at a listener of this name; None: none are dialled.

        Raises:
            StartError: the settings of the login cannot be used.
        """
        if name is None:
            return self._environment.network
        secured = self._listeners.get(name)
        tls = None if secured is None else secured.connector()
        protocol = protocol_of(self._dynamic.static, name)
        login = self._logins.login_at(name, mechanism_setting) if protocol.uses_sasl else None
        if tls is None and login is None:
            return self._environment.network
        return SecuredNetwork(self._environment.network, tls, login)

    # -- this node's listeners ------------------------------------------------------------------

    def serving_network(self, name: str) -> Network:
        """The network that waits for the sockets of a listener of this node."""
        network = self._environment.network
        return SecuredNetwork(network) if name in self._listeners else network

    def admission(self, name: str, dispatcher: Dispatcher) -> Admission | None:
        """What lets peers into a listener of this node; None: everybody may come.

        Args:
            dispatcher: serves the listener; answers what may be asked before a login.
        """
        steps: list[Admission] = []
        secured = self._listeners.get(name)
        if secured is not None:
            is_known = name not in self._sasl
            steps.append(secured.admission(self._environment.network, is_known=is_known))
        sasl = self._sasl.get(name)
        if sasl is not None:
            network, clock = self.serving_network(name), self._environment.clock
            steps.append(SaslAdmission(network, sasl, dispatcher, clock))
        return AdmissionSteps(*steps) if steps else None

    def on_metadata(self, image: MetadataImage, *, is_current: bool) -> None:
        """Take the newest metadata, of which users are (see `MetadataUsers.on_metadata`)."""
        self._logins.users.on_metadata(image, is_current=is_current)

    # -- renewal --------------------------------------------------------------------------------

    def _check(self, config: BrokerConfig) -> None:
        """Refuse settings that are about to be made, if they could not be used."""
        self._logins.check_unchanged(config)
        for secured in self._listeners.values():
            try:
                settings = tls_settings(config, secured.name)
                if settings != secured.settings:
                    secured.prepare(config, settings)
            except TlsSettingsError as error:
                raise PropertyError(f"listener {secured.name}: {error}") from error
        self._wake.set()  # the same name may stand for another file

    async def run(self) -> None:
        """Keep up to date what is presented and trusted, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._logins.provider_keys.run)
            await self._renew_certificates()

    async def _renew_certificates(self) -> None:
        while self._listeners:
            with trio.move_on_after(RENEWAL_S):
                await self._wake.wait()
            self._wake = trio.Event()
            for secured in self._listeners.values():
                await self._renew(secured)

    async def _renew(self, secured: TlsListener) -> None:
        config = self._dynamic.current
        try:
            settings = tls_settings(config, secured.name)
            if not secured.is_to_be_renewed(settings):
                return
            made: list[TlsContexts] = []
            await self._environment.run_in_thread(
                lambda: made.append(secured.prepare(config, settings))
            )
        except TlsSettingsError as error:
            _log.warning("certificates not renewed listener=%s reason=%s", secured.name, error)
            return
        until = secured.renew(made[0])
        _log.info("certificates renewed listener=%s until=%s", secured.name, until)
