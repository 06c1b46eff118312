"""Fixtures of the integration tests: brokers of the project in processes of their own."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.cluster_process import Cluster
from tests.integration.cluster_links import Links


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    """Let processes that tests start get SIGINT and SIGHUP, even if these are ignored (nohup)."""
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


@pytest.fixture
def links() -> Iterator[Links]:
    """The links among the nodes of the test's cluster."""
    made = Links()
    yield made
    made.close()


@pytest.fixture
def cluster_settings() -> dict[str, Any]:
    """The settings of the nodes of `cluster`; a module that needs others overrides this."""
    return {}


@pytest.fixture
def cluster(links: Links, cluster_settings: dict[str, Any], tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that reach each other through links that the test can break."""
    made = Cluster(tmp_path / "cluster", 3, links.overrides, **cluster_settings)
    links.attach(made)
    with made:
        yield made
