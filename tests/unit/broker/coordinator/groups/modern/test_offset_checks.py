"""Whose commits and fetches a group takes: by member, by epoch, in transactions and by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kraftrio.broker.coordinator.groups.modern.offset_checks import check_commit, check_fetch
from kraftrio.wire.errors import ErrorCode

KEPT, NEW, FOREIGN = (b"t" * 16, 0), (b"t" * 16, 1), (b"t" * 16, 2)
EPOCHS = {KEPT: 3, NEW: 5}  # in which the member got them
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
STALE, GENERATION = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION
OLD_VERSION = ErrorCode.UNSUPPORTED_VERSION


@dataclass(frozen=True)
class Member:
    """One in epoch 5."""

    is_classic: bool = False
    member_epoch: int = 5


def commit(
    member_id: str,
    epoch: int,
    *partitions: tuple[bytes, int],
    version: int = 9,
    members: dict[str, Member] | None = None,
) -> ErrorCode:
    """Commit; version 0: in a transaction."""
    found = {"m": Member(), "c": Member(is_classic=True)} if members is None else members
    return check_commit(
        found,
        member_id,
        None,
        epoch,
        lambda _, topic_id, index: EPOCHS.get((topic_id, index)),
        transactional=not version,
        api_version=version,
        partitions=partitions,
    )


@pytest.mark.parametrize(
    ("epoch", "partition", "code"),
    [
        (5, FOREIGN, NONE),  # what is not its own it may commit, too, as in Kafka
        (4, KEPT, NONE),
        (3, KEPT, NONE),
        (2, KEPT, STALE),
        (4, NEW, STALE),
        (4, FOREIGN, STALE),
        (6, KEPT, STALE),
        (-1, KEPT, STALE),
    ],
)
def test_members(epoch: int, partition: tuple[bytes, int], code: ErrorCode) -> None:
    """An earlier epoch counts for what the member has had since; others know epochs by name."""
    assert commit("m", epoch, partition) is code
    named = GENERATION if code is STALE else code
    assert commit("m", epoch, partition, version=0) is named
    assert commit("c", epoch, partition) is named


def test_versions() -> None:
    """A request that knows no epochs is for members that know none."""
    assert commit("m", 5, KEPT, version=8) is OLD_VERSION
    assert commit("c", 5, KEPT, version=8) is NONE


@pytest.mark.parametrize("version", [0, 9])
def test_others(version: int) -> None:
    """By hand while there are no members; a producer need not say for whom it commits."""
    assert commit("x", 5, version=version) is UNKNOWN
    assert commit("", -1, version=version) is (UNKNOWN if version else NONE)
    assert commit("", -1, version=version, members={}) is NONE
    assert commit("m", 5, version=version, members={}) is UNKNOWN


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, NONE),
        (None, 5, UNKNOWN),
        ("x", 5, UNKNOWN),
        ("m", 5, NONE),
        ("m", 4, STALE),
        ("c", 4, GENERATION),
    ],
)
def test_fetches(member_id: str | None, epoch: int, code: ErrorCode) -> None:
    """In its epoch alone, or by hand."""
    members = {"m": Member(), "c": Member(is_classic=True)}
    assert check_fetch(members, member_id, epoch) is code
