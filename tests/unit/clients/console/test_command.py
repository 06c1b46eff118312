"""What `kraftrio console` is given, and what it says where it cannot begin."""

from __future__ import annotations

import sys

import click
import pytest

from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.console.command import parse_listen
from kraftrio.clients.console.extra import import_server


def test_where_to_listen() -> None:
    assert parse_listen("localhost:8080") == ("localhost", 8080)
    assert parse_listen("[::1]:0") == ("::1", 0)
    for text in ("8080", ":8080", "localhost:", "localhost:99999", "localhost:x"):
        with pytest.raises(click.UsageError, match="expected HOST:PORT"):
            parse_listen(text)


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kraftrio.clients.console.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("kraftrio.clients.console.server", raising=False)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(CommandError, match=r"pip install 'kraftrio\[console\]'"):
        import_server()
