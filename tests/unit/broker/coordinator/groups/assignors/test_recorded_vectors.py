"""Every assignor decides as Apache Kafka's broker did, for each of the recorded groups."""

from __future__ import annotations

import lzma
from collections import Counter

import pytest

from kraftrio.broker.config.group_checks import CONSUMER_ASSIGNORS as ALLOWED_CONSUMER_ASSIGNORS
from kraftrio.broker.config.group_checks import SHARE_ASSIGNORS as ALLOWED_SHARE_ASSIGNORS
from kraftrio.broker.coordinator.groups.assignors.builtin import CONSUMER_ASSIGNORS, SHARE_ASSIGNORS
from tests.unit.broker.coordinator.groups.assignors.vectors import (
    ASSIGNORS,
    RECORDED,
    check_case,
    parse_case,
)

LINES = lzma.decompress(RECORDED.read_bytes()).decode().splitlines()


@pytest.mark.parametrize("name", ASSIGNORS)
def test_recorded_groups(name: str) -> None:
    """Groups of either kind, with members that come, leave and change their topics."""
    kinds: Counter[bool] = Counter()
    for line in LINES:
        if line.startswith(f'["{name}"'):
            case = parse_case(line)
            check_case(case)
            assert case.expected is not None
            kinds[case.spec.is_homogeneous] += 1
    assert min(kinds[True], kinds[False]) >= 50


def test_settings_allow_the_assignors_that_are_there() -> None:
    """In the order of the defaults."""
    assert tuple(CONSUMER_ASSIGNORS) == ALLOWED_CONSUMER_ASSIGNORS
    assert tuple(SHARE_ASSIGNORS) == ALLOWED_SHARE_ASSIGNORS
