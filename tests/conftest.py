"""What every test shares: the checkout on the import path, and no settings from outside.

The tests' own helpers are imported by their full names, such as tests.conformance.broker_process.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def pytest_configure(config: pytest.Config) -> None:
    """Register our marks, and let Python keep what it compiles.

    Tests start a thousand processes of ours. With PYTHONDONTWRITEBYTECODE, as images of containers
    have it, each would compile all of its modules, which takes longer than the rest of its start.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    config.addinivalue_line("markers", "measures: time or memory, so that nothing runs beside it")
    config.addinivalue_line("markers", "not_served: about what ours does not offer, as README says")
    config.addinivalue_line(
        "markers", "long_churn: runs as long as TEST_CHURN_S says, if it is set"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked not_served to Apache's broker, and long_churn to who asks for it."""
    is_wanted = {
        "not_served": os.environ.get("TEST_BROKER") == "apache",
        "long_churn": "TEST_CHURN_S" in os.environ,
    }
    unwanted = [mark for mark, wanted in is_wanted.items() if not wanted]
    others = [item for item in items if any(map(item.get_closest_marker, unwanted))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what there is now: thousands of tests, which stay."""
    gc.collect()
    gc.freeze()


def pytest_sessionstart() -> None:
    """Refuse variables that every broker under test would take for settings."""
    found = sorted(name for name in os.environ if name.startswith("KRAFTRIO_"))
    if found:
        raise pytest.UsageError(
            f"{', '.join(found)} would configure the brokers under test; what configures the tests"
            " themselves begins with TEST_"
        )
