"""What the assignors of Apache Kafka's broker decided for random groups, read and compared.

The form of a case, and how they are made, is in tests/conformance/BrokerAssignorVectors.java. Made
again with:

    java -cp "$(scripts/apache_kafka.py libs)/*" tests/conformance/BrokerAssignorVectors.java 1 90 |
        xz -9 > tests/unit/broker/coordinator/groups/assignors/vectors.jsonl.xz

What is compared: the whole assignment, partition by partition, for the same input in one order. One
difference is meant, and left out: topics that no member of a share group subscribes to any more
(see `simple_assignor`). What a share group has is always assignable, as in a broker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.assignors.builtin import CONSUMER_ASSIGNORS, SHARE_ASSIGNORS
from kraftrio.broker.coordinator.groups.assignors.spec import (
    Assignment,
    AssignmentSpec,
    MemberSpec,
    TopicSpec,
)

RECORDED = Path(__file__).with_name("vectors.jsonl.xz")
RECORDED_SEED, RECORDED_GROUPS = 1, 90
ASSIGNORS = {**CONSUMER_ASSIGNORS, **SHARE_ASSIGNORS}


class Case(NamedTuple):
    """One group, and what Kafka decided; None where it gave up with an error of its own."""

    assignor: str
    spec: AssignmentSpec
    expected: Assignment | None


def parse_case(line: str) -> Case:
    """Read one line."""
    assignor, is_homogeneous, topics, members, assignable = json.loads(line)
    ids = [bytes.fromhex(topic_id) for topic_id, _ in topics]
    spec = AssignmentSpec(
        members={
            member_id: MemberSpec(
                frozenset(ids[topic] for topic in subscribed),
                _partitions(before, ids),
                instance_id=instance_id,
            )
            for member_id, instance_id, subscribed, before, _ in reversed(members)
        },
        topics={
            topic_id: TopicSpec(count)
            for topic_id, (_, count) in zip(ids, topics, strict=True)
            if count >= 0
        },
        is_homogeneous=is_homogeneous,
        assignable=None if assignable is None else _partitions(assignable, ids),
    )
    if members[0][-1] is None:
        return Case(assignor, spec, None)
    subscribed_ids = {
        topic_id for member in spec.members.values() for topic_id in member.subscribed_topic_ids
    }
    expected = {
        member_id: {
            topic_id: partitions
            for topic_id, partitions in _partitions(after, ids).items()
            if assignor != "simple" or topic_id in subscribed_ids
        }
        for member_id, _, _, _, after in members
    }
    return Case(assignor, spec, expected)


def _partitions(text: str, ids: list[bytes]) -> dict[bytes, frozenset[int]]:
    found = {}
    for part in filter(None, text.split(";")):
        topic, _, runs = part.partition(":")
        partitions: set[int] = set()
        for run in runs.split(","):
            first, _, last = run.partition("-")
            partitions.update(range(int(first), int(last or first) + 1))
        found[ids[int(topic)]] = frozenset(partitions)
    return found


def check_case(case: Case) -> None:
    """Let ours decide; AssertionError where it decides otherwise, or leaves empty entries."""
    assigned = ASSIGNORS[case.assignor].assign(case.spec)
    assert all(partitions for member in assigned.values() for partitions in member.values())
    if case.expected is not None:
        empty: Mapping[bytes, frozenset[int]] = {}
        ours = {member_id: assigned.get(member_id, empty) for member_id in case.spec.members}
        assert ours == case.expected
