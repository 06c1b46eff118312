"""The sheet of metrics keeps the rules of Prometheus, and its page is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kraftrio.broker.metrics.families import FAMILIES, Family, Kind

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_says_what_it_is(family: Family) -> None:
    assert re.fullmatch(r"kraftrio_[a-z][a-z0-9_]*", family.name)
    assert (family.kind is Kind.COUNTER) == family.name.endswith("_total")
    assert not re.search(r"_(ms|kb|percent|nanoseconds)(_|$)", family.name), "base units"
    assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels)
    assert family.help.endswith(".") or family.name.endswith("_info")
    assert (family.scale != 1) == ("seconds" in family.name)


def test_a_name_is_used_once() -> None:
    assert not [name for name, count in Counter(f.name for f in FAMILIES).items() if count > 1]


def test_the_page_is_made_from_the_sheet() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "make_docs.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
