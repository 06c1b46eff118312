"""The pipeline comes to the same results with Apache Kafka; how fast, versus_apache.py measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.versus_apache import compare

pytestmark = pytest.mark.timeout(900)


def test_same_results_with_apache_kafka(tmp_path: Path) -> None:
    """A week's results are those of the files with both brokers; the ratio is shown with -s."""
    speeds = compare(tmp_path, rounds=1, before="2013-01-08")
    print(f"kraftrio / apache: {speeds['kraftrio'][0] / speeds['apache'][0]:.2f}")
