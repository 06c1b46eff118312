"""What the tests of this folder share: sockets that their clients leave are closed after each."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _sweep(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect sockets that a client forgot, so that no later test is warned of them."""
    yield
    caplog.get_records("call").clear()  # they hold on to logged errors, and those to sockets
    gc.collect()
