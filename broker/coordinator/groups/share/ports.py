"""What share groups need from outside: a way to the share coordinator.

The initializer (`coordinator/share_initializer`) fits; tests bring their own.
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
    """Has states initialized, through whatever comes in between."""

    def initialize(self, states: StatesToInitialize) -> None:
        """Ask for states, then report how that went to the group (`states_initialized`)."""
