"""Messages that change the voters of the metadata quorum."""

from __future__ import annotations

import pytest

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import LocalProtocolError
from kraftrio.wire.messages.raft_voters import AddRaftVoterRequest, UpdateRaftVoterResponse


def test_adding_without_waiting_needs_version_1() -> None:
    """Version 0 always answers after the commit, so asking for less is an error there."""
    request = AddRaftVoterRequest(ack_when_committed=False)
    with pytest.raises(LocalProtocolError, match="ack_when_committed"):
        encode(request, 0)
    assert not decode(AddRaftVoterRequest, 1, encode(request, 1))[0].ack_when_committed


def test_unknown_leader_is_not_sent() -> None:
    """The default leader is -1 and costs no bytes."""
    data = encode(UpdateRaftVoterResponse(), 0)
    assert data == bytes(7)
    assert decode(UpdateRaftVoterResponse, 0, data)[0].current_leader.leader_id == -1
