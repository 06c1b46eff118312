"""What the tests that break the protocol leave behind: histories that end in the middle.

Their tasks are waited for by nobody. They are forgotten within the test, so that no other one is
blamed for them, and no warning of them counts.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

_IGNORE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def _ends_in_the_middle(item: pytest.Item) -> bool:
    return item.path.name == "test_mutations.py" or item.path.name.endswith("_scenarios.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no warning of an abandoned task count where histories are broken off."""
    for item in items:
        if item.path.parent.name == "sim" and _ends_in_the_middle(item):
            item.add_marker(_IGNORE)


@pytest.fixture(autouse=True)
def forget_what_was_broken_off(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect it before the next test."""
    yield
    if _ends_in_the_middle(request.node):
        gc.collect()
