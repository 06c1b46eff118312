"""The sheet of metrics keeps the rules of Prometheus."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from kraftrio.broker.metrics.families import FAMILIES, Family, MetricType


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_says_what_it_is(family: Family) -> None:
    assert re.fullmatch(r"kraftrio_[a-z][a-z0-9_]*", family.name)
    assert (family.kind is MetricType.COUNTER) == family.name.endswith("_total")
    assert not re.search(r"_(ms|kb|percent|nanoseconds)(_|$)", family.name), "base units"
    assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels)
    assert family.help.endswith(".") or family.name.endswith("_info")
    assert (family.scale != 1) == ("seconds" in family.name)


def test_a_name_is_used_once() -> None:
    assert not [name for name, count in Counter(f.name for f in FAMILIES).items() if count > 1]
