"""Sets that grow in small steps: the order of different values, whether few or many."""

from __future__ import annotations

import pytest

from kraftrio.broker.server.slices.sliced_sets import Distinct


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 18, 100, 2000])
def test_different_values_keep_the_order_of_their_first_coming(count: int) -> None:
    values = [f"{number * 7919 % 2003}" for number in range(count)]
    found: Distinct[str] = Distinct()
    for value in values + values[::-1]:
        found.add(value)
    assert found.values == values
