"""What is said to who would change the quorum's static voters."""

from __future__ import annotations

import pytest

from kraftrio.broker.api.shared.static_voters import refuse_to_add, refuse_to_remove
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    RaftVoterListener,
    RemoveRaftVoterRequest,
)

ID, DIRECTORY = "this", b"\x01" * 16
ENDPOINTS = [RaftVoterListener(name="C", host="h", port=1)]


@pytest.mark.parametrize(
    ("named", "voter_id", "directory", "endpoints", "code"),
    [
        ("this", 4, DIRECTORY, ENDPOINTS, ErrorCode.UNSUPPORTED_VERSION),
        (None, 4, DIRECTORY, ENDPOINTS, ErrorCode.UNSUPPORTED_VERSION),
        ("that", 4, DIRECTORY, ENDPOINTS, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ("", -1, DIRECTORY, ENDPOINTS, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (None, -1, DIRECTORY, ENDPOINTS, ErrorCode.INVALID_REQUEST),
        (None, 4, bytes(16), ENDPOINTS, ErrorCode.INVALID_REQUEST),
        (None, 4, DIRECTORY, [], ErrorCode.INVALID_REQUEST),
        (None, 4, DIRECTORY, [RaftVoterListener(name="D")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_new_voters(
    named: str | None,
    voter_id: int,
    directory: bytes,
    endpoints: list[RaftVoterListener],
    code: ErrorCode,
) -> None:
    """First the cluster is looked at, then the voter, then its endpoints."""
    request = AddRaftVoterRequest(
        cluster_id=named, voter_id=voter_id, voter_directory_id=directory, listeners=endpoints
    )
    answer = refuse_to_add(request, ID, ["C", "D"])
    assert answer.error_code is code
    assert answer.error_message


def test_a_node_without_a_listener_of_controllers() -> None:
    """It asks for the usual one; its cluster's id is not known before its first record."""
    endpoints = [RaftVoterListener(name="CONTROLLER")]
    request = AddRaftVoterRequest(
        cluster_id="that", voter_id=4, voter_directory_id=DIRECTORY, listeners=endpoints
    )
    assert refuse_to_add(request, "", []).error_code is ErrorCode.UNSUPPORTED_VERSION
    request = AddRaftVoterRequest(voter_id=4, voter_directory_id=DIRECTORY, listeners=ENDPOINTS)
    assert refuse_to_add(request, "", []).error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("named", "voter_id", "directory", "code"),
    [
        ("this", 4, DIRECTORY, ErrorCode.UNSUPPORTED_VERSION),
        ("that", 4, DIRECTORY, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (None, -1, DIRECTORY, ErrorCode.INVALID_REQUEST),
        (None, 4, bytes(16), ErrorCode.INVALID_REQUEST),
    ],
)
def test_former_voters(named: str | None, voter_id: int, directory: bytes, code: ErrorCode) -> None:
    """The same for one that is to leave."""
    request = RemoveRaftVoterRequest(
        cluster_id=named, voter_id=voter_id, voter_directory_id=directory
    )
    assert refuse_to_remove(request, ID).error_code is code
