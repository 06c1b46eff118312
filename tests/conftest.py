"""What every test shares: the checkout on the import path, and no settings from outside.

The tests' own helpers are imported by their full names, such as tests.conformance.broker_process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def pytest_sessionstart() -> None:
    """Refuse variables that every broker under test would take for settings."""
    found = sorted(name for name in os.environ if name.startswith("KRAFTRIO_"))
    if found:
        raise pytest.UsageError(
            f"{', '.join(found)} would configure the brokers under test; what configures the tests"
            " themselves begins with TEST_"
        )
