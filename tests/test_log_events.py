"""Each event in the log has a line that says what it means, and each line an event."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def log_events() -> ModuleType:
    """The script with the sheet."""
    spec = importlib.util.spec_from_file_location("log_events", ROOT / "scripts" / "log_events.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_event_has_its_meaning(log_events: ModuleType) -> None:
    found = list(log_events.events())
    assert len(found) > 80
    missing = [event for event in found if log_events.line_for(event.text) is None]
    assert not missing, "say in scripts/log_events.py what they mean, and run make_docs.py"


def test_every_line_has_an_event(log_events: ModuleType) -> None:
    used = {log_events.line_for(event.text) for event in log_events.events()}
    assert not [line.text for line in log_events.lines() if line not in used]


def test_a_line_has_a_meaning_and_a_remedy(log_events: ModuleType) -> None:
    for line in log_events.lines():
        assert line.meaning.endswith("."), line
        assert line.remedy == "-" or line.remedy.endswith((".", ")", "=).")), line
