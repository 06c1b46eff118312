"""What share groups need from outside: a way to the share coordinator.

`coordinator/share_initializer` implements it; tests bring their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class StatesToInitialize(NamedTuple):
    """Share partitions of a group that are to get a state.

    Attributes:
        state_epoch: the group epoch; older states are fenced.
        start_offsets: of partitions, by topic id; -1: the group's setting says where to start.
    """

    group_id: str
    state_epoch: int
    start_offsets: Mapping[bytes, Mapping[int, int]]


class StateInitializer(Protocol):
    """Has the share coordinator initialize states."""

    def initialize(self, states: StatesToInitialize) -> None:
        """Request states; the result is reported to the group later (`states_initialized`)."""
