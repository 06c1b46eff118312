"""Fixtures of the pipeline's tests: brokers and clusters of their own, and what must come out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.cluster_process import Cluster


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own."""
    started = start_broker(tmp_path / "broker")
    yield started
    started.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes of the test's own."""
    with Cluster(tmp_path / "cluster") as started:
        yield started
