"""A listener with TLS, this node's or one at which it dials others: what it presents and trusts.

Owns: `TlsListener`. What it makes of its settings is replaced as a whole (`renew`); the connections
that there are keep what they began with.

Called by: `secured_listeners`, which loads this module where a listener has TLS.
"""

from __future__ import annotations

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.listener_settings import settings_of
from kraftrio.broker.security.principal import ANONYMOUS, KafkaPrincipal
from kraftrio.broker.security.tls.principal_rules import (
    PRINCIPAL_RULES,
    PrincipalRuleError,
    PrincipalRules,
)
from kraftrio.broker.server.admission.handshake_slots import HandshakeSlots
from kraftrio.broker.server.admission.tls_admission import TlsAdmission
from kraftrio.net.tls.client import TlsConnector
from kraftrio.net.tls.identity import FileStamp, TlsContexts, TlsIdentity, file_stamps
from kraftrio.net.tls.renewal import check_renewal
from kraftrio.net.tls.settings import TlsSettings, TlsSettingsError
from kraftrio.net.transport import Network


class TlsListener:
    """See the module.

    Attributes:
        identity: what connections begin with.

    Args:
        is_own: this node listens there.

    Raises:
        TlsSettingsError: the settings cannot be used.
    """

    def __init__(
        self, config: BrokerConfig, settings: TlsSettings, name: str, *, is_own: bool
    ) -> None:
        self.name = name
        self._is_own = is_own
        self._trusts_itself = is_own and name == config.inter_broker_listener_name
        self.identity = TlsIdentity(self._contexts(settings))
        try:
            self._rules = PrincipalRules(settings_of(config, name).get(PRINCIPAL_RULES, ""))
        except PrincipalRuleError as error:
            raise TlsSettingsError(str(error)) from error
        # What could not be used, logged already.
        self._refused: tuple[TlsSettings, tuple[FileStamp, ...]] | None = None

    @property
    def settings(self) -> TlsSettings:
        """Those in use."""
        return self.identity.current.settings

    def connector(self) -> TlsConnector:
        """What dials this listener of another node."""
        return TlsConnector(self.identity.client_context)

    def admission(self, network: Network, *, is_known: bool) -> TlsAdmission:
        """What lets peers in.

        Args:
            is_known: a client is who its certificate says; else it has to log in.
        """
        return TlsAdmission(
            network,
            self.identity.server_context,
            self._rules.principal_of if is_known else _unknown,
            HandshakeSlots(),
        )

    # -- renewal --------------------------------------------------------------------------------

    def is_to_be_renewed(self, settings: TlsSettings) -> bool:
        """Whether to try these settings: they or their files are others than those in use.

        It says so once: what turns out not to be usable is not tried again.
        """
        current, tried = self.identity.current, (settings, file_stamps(settings))
        if tried in ((current.settings, current.stamps), self._refused):
            return False
        self._refused = tried
        return True

    def prepare(self, config: BrokerConfig, settings: TlsSettings) -> TlsContexts:
        """Make what replaces the state in use; in the calling thread.

        Raises:
            TlsSettingsError: it cannot be made, or must not replace it.
        """
        contexts = self._contexts(settings)
        check_renewal(
            self.identity.current.material.own,
            contexts.material.own,
            allows_other_name=bool(config.value("ssl.allow.dn.changes")),
            allows_other_hosts=bool(config.value("ssl.allow.san.changes")),
        )
        return contexts

    def renew(self, contexts: TlsContexts) -> str:
        """Use what was prepared; return until when the certificate is valid, as ISO 8601."""
        self.identity.current = contexts
        self._refused = None
        own = contexts.material.own
        return "none" if own is None else own.chain[0].not_valid_after_utc.isoformat()

    def _contexts(self, settings: TlsSettings) -> TlsContexts:
        return TlsContexts.prepare(
            settings, is_server=self._is_own, trusts_itself=self._trusts_itself
        )


def _unknown(_certificate: bytes | None) -> KafkaPrincipal:
    """Who a client is, whatever it shows, until it has logged in."""
    return ANONYMOUS
