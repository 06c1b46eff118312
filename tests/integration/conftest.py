"""Fixtures of the integration tests: brokers of the project in processes of their own."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.broker_process import Broker


@pytest.fixture(autouse=True)
def heard_signals() -> Iterator[None]:
    """What a test starts hears SIGINT and SIGHUP, though they be ignored here (nohup, `&`)."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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
