"""Who votes in the metadata quorum, and where each voter listens: `VoterSet`, one immutable value.

The voters are static today (controller.quorum.voters). A change (KIP-853) would be another value,
which everybody who subscribed to the voters is given.

Called by: the Raft core (ids and majorities), the quorum's shell and the broker's controller room
(endpoints).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.wire.primitives import ZERO_UUID


class VoterEndpoint(NamedTuple):
    """One controller listener of a voter."""

    listener_name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter. `directory_id` is zero for static voters, which are known by their ids alone."""

    node_id: int
    endpoints: tuple[VoterEndpoint, ...] = ()
    directory_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters by node id, in the order of their ids; at least one.

    Iterating gives the node ids.
    """

    voters: tuple[Voter, ...]
    ids: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        assert self.voters, "a quorum has at least one voter"
        ordered = tuple(sorted(self.voters, key=lambda voter: voter.node_id))
        ids = tuple(voter.node_id for voter in ordered)
        assert len(set(ids)) == len(ids), "a voter is named once"
        object.__setattr__(self, "voters", ordered)
        object.__setattr__(self, "ids", ids)

    @classmethod
    def of_ids(cls, node_ids: Iterable[int]) -> VoterSet:
        """Return voters of which nothing but the ids is known."""
        return cls(tuple(Voter(node_id) for node_id in node_ids))

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self.ids

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.ids) // 2 + 1

    def is_sole_voter(self, node_id: int) -> bool:
        """Return whether a node is the whole quorum."""
        return self.ids == (node_id,)

    def others(self, node_id: int) -> list[int]:
        """Return the voters but one, by id."""
        return [voter for voter in self.ids if voter != node_id]

    def endpoints(self, node_id: int) -> tuple[VoterEndpoint, ...]:
        """Return where a voter listens; nothing for one without a listener, and for other nodes."""
        for voter in self.voters:
            if voter.node_id == node_id:
                return voter.endpoints
        return ()

    def address(self, node_id: int) -> tuple[str, int] | None:
        """Return host and port of a voter's first controller listener, None if it has none."""
        endpoints = self.endpoints(node_id)
        return (endpoints[0].host, endpoints[0].port) if endpoints else None
