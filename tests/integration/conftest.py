"""Fixtures of the integration tests: brokers of the project in processes of their own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.broker_process import Broker


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Start brokers of the test's own: make_broker(log_retention_ms=1000); they end with it."""
    numbers = itertools.count(1)
    with contextlib.ExitStack() as started:

        def make(**config: object) -> Broker:
            made = Broker(tmp_path / f"broker-{next(numbers)}", **config).start()
            started.callback(made.close)
            return made

        yield make
