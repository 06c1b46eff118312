"""Which certificate may replace another while a node runs, as Kafka has it (KIP-978). Pure.

Rules: a node keeps its distinguished name (`ssl.allow.dn.changes`), and loses none of its
alternative names (`ssl.allow.san.changes`), so that a mistake is found by those who make it and not
by all clients; it cannot lose its key store.

Called by: the broker, before it takes a renewed key store.
"""

from __future__ import annotations

from cryptography import x509

from kraftrio.net.tls.key_stores import KeyEntry
from kraftrio.net.tls.settings import TlsSettingsError


def check_renewal(
    old: KeyEntry | None,
    new: KeyEntry | None,
    *,
    allows_other_name: bool = False,
    allows_other_hosts: bool = False,
) -> None:
    """Check what a node shows from now on against what it has shown.

    Raises:
        TlsSettingsError: it may not be replaced so.
    """
    if old is None or new is None:
        if old is not new:
            raise TlsSettingsError("a key store can be neither added nor removed while a node runs")
        return
    before, after = old.chain[0], new.chain[0]
    if before.subject != after.subject and not allows_other_name:
        raise TlsSettingsError(
            f"the new certificate is of {after.subject.rfc4514_string()}, the one before is of"
            f" {before.subject.rfc4514_string()}: set ssl.allow.dn.changes=true if that is meant"
        )
    lost = _hosts(before) - _hosts(after)
    if lost and not allows_other_hosts:
        raise TlsSettingsError(
            f"the new certificate does not name {', '.join(sorted(lost))}, as the one before does:"
            " set ssl.allow.san.changes=true if that is meant"
        )


def _hosts(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return {str(name.value) for name in names}
