"""The plugin in a project of its own: scopes, wrong marks, the examples of docs/testing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

pytest_plugins = ["pytester"]

_PROJECT = """
import pytest
seen = []

@pytest.mark.kafka(scope="module")
@pytest.mark.parametrize("number", range(2))
def test_shared(kafka_broker, number):
    assert kafka_broker.topics == {}
    kafka_broker.produce("orders", "one")
    seen.append(kafka_broker.bootstrap_servers)
    assert len(set(seen)) == 1

@pytest.mark.parametrize("number", range(2))
def test_own(kafka_broker, number):
    assert kafka_broker.bootstrap_servers not in seen
    seen.append(kafka_broker.bootstrap_servers)

@pytest.mark.kafka(brokers=2)
def test_cluster(kafka_cluster):
    assert len(kafka_cluster.bootstrap_servers.split(",")) == 2

@pytest.mark.kafka(scope="week")
def test_scope(kafka_broker): ...

@pytest.mark.kafka(borkers=3)
def test_name(kafka_cluster): ...

@pytest.mark.kafka(3)
def test_position(kafka_cluster): ...

@pytest.mark.kafka(disk="tape")
def test_disk(kafka_broker): ...
"""


def _examples() -> str:
    """The examples of the documentation."""
    pages = sorted((ROOT / "docs" / "testing").glob("*.md"))
    blocks = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return "\n".join("\n".join(blocks.findall(page.read_text())) for page in pages)


def test_a_project(pytester: pytest.Pytester) -> None:
    """Shared brokers are empty for each test; what a wrong mark should be is said in a sentence."""
    pytester.makepyfile(test_project=_PROJECT, test_pages=_examples())
    result = pytester.runpytest_subprocess("-p", "kraftrio.testing.plugin", "--strict-markers")
    result.assert_outcomes(passed=5 + _examples().count("def test_"), errors=4)
    result.stdout.fnmatch_lines_random(
        [
            "*(scope='week'): wanted is function, module or session*",
            "*knows no 'borkers': wanted is one of scope, brokers, config, disk, in_process*",
            "*takes names only, such as brokers=3, not 3*",
            "*(disk='tape'): wanted is memory or folder*",
        ]
    )
