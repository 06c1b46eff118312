"""The pipeline comes to the same results with Apache Kafka; how fast, versus_apache.py measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.versus_apache import compare

pytestmark = pytest.mark.timeout(900)


def test_same_results_with_apache_kafka(tmp_path: Path) -> None:
    """A week's results are those of the files, as all other tests see with our broker."""
    (speed,) = compare(tmp_path, rounds=1, before="2013-01-08", kinds=["apache"])["apache"]
    assert speed > 0
