"""One broker with all the ways in, for all tests of this folder, and the clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.java_tools import ToolRunner
from tests.conformance.secured.broker import SecuredBroker
from tests.conformance.secured.programs import Program, programs


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """The broker."""
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="session")
def clients(
    tool_runner: ToolRunner, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Program]:
    """All clients by name."""
    return programs(tool_runner, tmp_path_factory.mktemp("tools"))
