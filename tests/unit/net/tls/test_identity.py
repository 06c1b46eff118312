"""What a side shows and believes: made whole, renewed by files, and believed by its own kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftrio.net.tls.identity import TlsContexts, TlsIdentity, file_stamps
from kraftrio.net.tls.settings import TlsSettings, TlsSettingsError
from tests.security.certificates import Authority, key_store, trust_store

CA = Authority()


def settings_in(folder: Path, authority: Authority = CA) -> TlsSettings:
    return TlsSettings.from_properties(
        key_store(folder, CA.server()) | trust_store(folder, authority)
    )


def test_both_contexts_of_a_server(tmp_path: Path) -> None:
    contexts = TlsContexts.prepare(settings_in(tmp_path), is_server=True, trusts_itself=True)
    identity = TlsIdentity(contexts)
    assert identity.server_context() is contexts.server
    assert identity.client_context() is contexts.client
    assert TlsContexts.prepare(settings_in(tmp_path), is_server=False).server is None


def test_a_file_that_was_replaced_or_written_is_another(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    before = file_stamps(settings)
    assert file_stamps(settings) == before and len(before) == 2
    settings_in(tmp_path)
    replaced = file_stamps(settings)
    assert replaced != before
    assert settings.keystore is not None and settings.keystore.location is not None
    os.utime(settings.keystore.location, ns=(1, 1))
    assert file_stamps(settings) not in (before, replaced)
    os.unlink(settings.keystore.location)
    assert file_stamps(settings)[0] == (0, 0, 0)


def test_a_node_must_trust_its_own_kind(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, Authority("Other"))
    TlsContexts.prepare(settings, is_server=True)
    with pytest.raises(TlsSettingsError, match=r"is not trusted by ssl\.truststore"):
        TlsContexts.prepare(settings, is_server=True, trusts_itself=True)
