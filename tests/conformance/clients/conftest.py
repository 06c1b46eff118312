"""What the tests of this folder share: sockets that their clients leave are closed after each."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _sweep() -> Iterator[None]:
    """Collect sockets that a client forgot, so that no later test is warned of them."""
    yield
    gc.collect()
