"""SASL in a node: how peers log in at its listeners, and how it logs in at others.

Owns: `NodeLogins`. Rules (Kafka's)
1. The settings are those of the listener (`listener.name.<name>.<mechanism>.sasl.jaas.config`),
   also of one at which this node dials others: its JAAS text has both the users who may come, for
   PLAIN, and the one as whom this node goes.
2. A node goes to brokers by `sasl.mechanism.inter.broker.protocol`, to controllers by
   `sasl.mechanism.controller.protocol`; brokers let that one in.
3. What cannot be used at the start ends it, with one sentence.

Called by: `security`, for each listener with SASL.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kraftrio.base.secret import Secret
from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.listener_settings import prefix_of, settings_of
from kraftrio.broker.config.types import PropertyError
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.settings import token_settings
from kraftrio.broker.security.sasl.metadata_users import MetadataUsers
from kraftrio.broker.security.sasl.settings import (
    KeySource,
    ListenerSasl,
    LoginPorts,
    SaslSettingError,
    check_mechanism,
    jaas_of,
    listener_sasl,
)
from kraftrio.broker.upkeep.provider_keys import ProviderKeys, read_keys
from kraftrio.net.http_fetch import FetchError
from kraftrio.net.sasl.credentials import SaslSettingsError, credentials_of, nonces
from kraftrio.net.sasl.jaas import OAUTHBEARER_MODULE, JaasEntry
from kraftrio.net.sasl.login import SaslLogin
from kraftrio.wire.sasl.oauthbearer import OAUTHBEARER
from kraftrio.wire.sasl.scram_keys import ScramMechanism

_log = logging.getLogger("kraftrio.node")

INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM = "sasl.mechanism.controller.protocol"

_MAX_REAUTH = "connections.max.reauth.ms"


class NodeLogins:
    """See the module.

    Attributes:
        users: those of SCRAM; takes each new image of the metadata.
    """

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self._config = config
        self._environment = environment
        self._sources: list[KeySource] = []
        self._own: list[str] = []  # this node's listeners with SASL
        self.users = MetadataUsers(environment.rng.randbytes, token_settings(config).secret_key)

    def listener(self, name: str) -> ListenerSasl:
        """What logins at a listener of this node need.

        Raises:
            StartError: its settings cannot be used.
        """
        self._own.append(name)
        ports = LoginPorts(self.users, nonces(self._environment.rng))
        try:
            sasl = listener_sasl(name, settings_of(self._config, name), ports)
            self._check_own_mechanism(name, sasl)
            for mechanism in sasl.mechanisms.values():
                if mechanism.keys is not None:
                    self._add_source(mechanism.keys)
        except SaslSettingError as error:
            raise StartError(str(error)) from error
        except (FetchError, ValueError) as error:
            raise StartError(f"listener {name}: {error}") from error
        if any(mechanism.is_for_tests for mechanism in sasl.mechanisms.values()):
            _log.warning(
                "tokens are not signed, and let anybody in, which is for tests listener=%s", name
            )
        return sasl

    def check_unchanged(self, config: BrokerConfig) -> None:
        """Raise PropertyError where a listener's settings of logins are others than at the start.

        As in Kafka: they stay what they were as long as the listener is there.
        """
        for name in self._own:
            if _of_logins(config, name) != _of_logins(self._config, name):
                raise PropertyError(
                    f"Configs cannot be updated dynamically for existing listener {name}, restart"
                    " broker or create a new listener for update"
                )

    def _check_own_mechanism(self, name: str, sasl: ListenerSasl) -> None:
        if name != self._config.inter_broker_listener_name:
            return
        mechanism = str(self._config.value(INTER_BROKER_MECHANISM))
        if mechanism not in sasl.mechanisms:
            raise SaslSettingError(
                f"{INTER_BROKER_MECHANISM} is {mechanism}, which is not among"
                f" sasl.enabled.mechanisms of listener {name}"
            )

    def _add_source(self, source: KeySource) -> None:
        """Read a file now, as it can only be missing; a provider is asked later, repeatedly."""
        self._sources.append(source)
        if source.url.startswith("file:"):
            read_keys(source)

    def login_at(self, name: str, setting: str) -> SaslLogin:
        """As whom this node logs in at a listener of other nodes.

        Args:
            setting: which one names the mechanism.

        Raises:
            StartError: its settings cannot be used.
        """
        mechanism = str(self._config.value(setting))
        settings = settings_of(self._config, name)
        environment = self._environment
        try:
            check_mechanism(mechanism, setting, name)
            entry = jaas_of(mechanism, name, settings) or _no_entry(mechanism, name)
            credentials = credentials_of(
                mechanism, entry, settings, environment.rng, environment.clock.wall_ms
            )
        except SaslSettingError as error:
            raise StartError(str(error)) from error
        except SaslSettingsError as error:
            raise StartError(f"listener {name}: {error}") from error
        self._add_own_credential(mechanism, entry.options)
        client_id = f"kraftrio-node-{self._config.node_id}"
        return SaslLogin(credentials, environment.run_in_thread, environment.rng, client_id)

    def _add_own_credential(self, mechanism: str, options: Mapping[str, str]) -> None:
        scram = ScramMechanism.of_name(mechanism)
        if scram is not None and options.get("tokenauth", "").lower() != "true":
            self.users.add_own_credential(scram, options["username"], Secret(options["password"]))

    @property
    def provider_keys(self) -> ProviderKeys:
        """What keeps the keys of identity providers up to date, once it runs."""
        return ProviderKeys(self._sources, self._environment.run_in_thread)


def _of_logins(config: BrokerConfig, listener: str) -> dict[str, str]:
    """The settings of logins that are a listener's own."""
    prefix = prefix_of(listener)
    own = {
        name.removeprefix(prefix): text
        for name, text in config.originals.items()
        if name.startswith(prefix)
    }
    return {
        name: text for name, text in own.items() if "sasl." in name or name.endswith(_MAX_REAUTH)
    }


def _no_entry(mechanism: str, listener: str) -> JaasEntry:
    """What stands for a JAAS text that is not set."""
    if mechanism != OAUTHBEARER:
        raise SaslSettingError(
            f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config is not set, and"
            " says as whom to log in at other nodes"
        )
    return JaasEntry(OAUTHBEARER_MODULE, {})
