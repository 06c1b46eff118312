"""What the Java client's assignors decided, as tests/conformance/AssignorVectors.java prints it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kraftrio.clients.consumer.membership.assignors import (
    ASSIGNORS,
    MemberSubscription,
    StickyAssignor,
    assignment_bytes,
    assignment_partitions,
)

RECORDED = Path(__file__).with_name("vectors") / "assignors.jsonl"
RECORDED_SEED, RECORDED_GROUPS = 8, 28  # what made the file


class Case(NamedTuple):
    """One rebalance of a group."""

    assignor: str
    topics: dict[str, int]
    instance_ids: dict[str, str | None]
    subscriptions: dict[str, bytes]  # in the order in which the members joined
    assignments: dict[str, bytes]

    @property
    def members(self) -> dict[str, MemberSubscription]:
        """What the leader reads out of the members' bytes."""
        return {
            member: MemberSubscription.decode(data, self.instance_ids[member])
            for member, data in self.subscriptions.items()
        }

    @property
    def is_sound(self) -> bool:
        """Whether Java gave nobody a topic that it does not want.

        Its sticky assignors sometimes do: a partition goes back to whom it once belonged to, also
        when that member has changed its topics since. Ours do not follow them in that.
        """
        return all(
            {partition.topic for partition in assignment_partitions(self.assignments[member])}
            <= set(subscription.topics)
            for member, subscription in self.members.items()
        )


def parse_cases(lines: Iterable[str]) -> list[Case]:
    """Read what the Java program prints."""
    cases = []
    for line in lines:
        read = json.loads(line)
        members = read["members"]
        cases.append(
            Case(
                read["assignor"],
                read["topics"],
                {member: instance_id for member, instance_id, _, _ in members},
                {member: base64.b64decode(data) for member, _, data, _ in members},
                {member: base64.b64decode(data) for member, _, _, data in members},
            )
        )
    return cases


def check_case(case: Case) -> None:
    """Compare with Java: the bytes of subscriptions, of user data and of assignments."""
    members = case.members
    for member, data in case.subscriptions.items():
        version = int.from_bytes(data[:2])
        assert members[member].encode(version) == data
        if case.assignor == "sticky" and members[member].user_data:
            check_user_data(members[member])
    assigned = ASSIGNORS[case.assignor]().assign(case.topics, members)
    if case.is_sound:
        got = {member: assignment_bytes(partitions) for member, partitions in assigned.items()}
        assert got == case.assignments
    shared = [partition for partitions in assigned.values() for partition in partitions]
    assert len(shared) == len(set(shared))
    for member, partitions in assigned.items():
        assert {partition.topic for partition in partitions} <= set(members[member].topics)


def check_user_data(subscription: MemberSubscription) -> None:
    """A sticky member that remembers the same writes the same.

    With more topics their order also depends on that in which it was assigned them, and that is
    not told.
    """
    data = subscription.user_data
    assert data is not None
    remembered = assignment_partitions(b"\0\3" + data[:-4] + b"\xff\xff\xff\xff")
    if len({partition.topic for partition in remembered}) > 12:
        return
    assignor = StickyAssignor()
    assignor.on_assignment(remembered, int.from_bytes(data[-4:], signed=True))
    assert assignor.user_data(subscription.topics) == data
