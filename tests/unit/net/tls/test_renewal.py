"""Which certificate may replace another while a node runs (KIP-978)."""

from __future__ import annotations

import pytest

from kraftrio.net.tls.key_stores import KeyEntry
from kraftrio.net.tls.renewal import check_renewal
from kraftrio.net.tls.settings import TlsSettingsError
from tests.security.certificates import Authority

CA = Authority()


def entry(subject: str, *hosts: str) -> KeyEntry:
    identity = CA.server(subject, hosts)
    return KeyEntry(identity.key_pem().encode(), identity.chain)


OLD = entry("broker", "a.example", "127.0.0.1")


def test_the_same_name_with_the_same_hosts_or_more() -> None:
    check_renewal(OLD, entry("broker", "127.0.0.1", "a.example", "b.example"))
    check_renewal(entry("x"), entry("x", "a.example"))
    check_renewal(None, None)


def test_another_name() -> None:
    other = entry("other", "a.example", "127.0.0.1")
    with pytest.raises(TlsSettingsError, match=r"of CN=other, the one before is of CN=broker: set"):
        check_renewal(OLD, other)
    check_renewal(OLD, other, allows_other_name=True)


def test_fewer_hosts() -> None:
    fewer = entry("broker", "a.example")
    with pytest.raises(TlsSettingsError, match=r"does not name 127\.0\.0\.1, as the one before"):
        check_renewal(OLD, fewer)
    check_renewal(OLD, fewer, allows_other_hosts=True)


def test_a_key_store_is_neither_added_nor_removed() -> None:
    for old, new in ((OLD, None), (None, OLD)):
        with pytest.raises(TlsSettingsError, match="neither added nor removed"):
            check_renewal(old, new, allows_other_name=True, allows_other_hosts=True)
