"""The assignors that this broker has, by name."""

from __future__ import annotations

from typing import Final

from kraftrio.broker.coordinator.groups.assignors.range_assignor import RangeAssignor
from kraftrio.broker.coordinator.groups.assignors.simple_assignor import SimpleAssignor
from kraftrio.broker.coordinator.groups.assignors.spec import Assignor
from kraftrio.broker.coordinator.groups.assignors.uniform_assignor import UniformAssignor

CONSUMER_ASSIGNORS: Final[dict[str, Assignor]] = {
    one.name: one for one in (UniformAssignor(), RangeAssignor())
}
"""Those that `group.consumer.assignors` may name."""

SHARE_ASSIGNORS: Final[dict[str, Assignor]] = {one.name: one for one in (SimpleAssignor(),)}
"""Those that `group.share.assignors` may name."""
