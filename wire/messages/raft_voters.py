"""Messages that change the voters of the metadata quorum (KIP-853), and what records them.

AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, and the data of the control records that hold
the voters: VotersRecord and KRaftVersionRecord. Declarations only; fields and versions are those
of Apache Kafka 4.3. The quorum service, admin clients and snapshots use them.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    array,
    boolean,
    error,
    explanation,
    int16,
    int32,
    message,
    string,
    struct,
    struct_field,
    uint16,
    uuid,
)
from kraftrio.wire.errors import ErrorCode

# AddRaftVoter (key 80), RemoveRaftVoter (81), UpdateRaftVoter (82)


@struct
class RaftVoterListener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@message("0-1", flexible="0+", api_key=80)
class AddRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[RaftVoterListener] = array(RaftVoterListener)
    ack_when_committed: bool = boolean("1+", default=True)


@message("0-1", flexible="0+", api_key=80)
class AddRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


@message("0", flexible="0+", api_key=81)
class RemoveRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@message("0", flexible="0+", api_key=81)
class RemoveRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


@struct
class KRaftVersionFeature:
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message("0", flexible="0+", api_key=82)
class UpdateRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[RaftVoterListener] = array(RaftVoterListener)
    kraft_version_feature: KRaftVersionFeature = struct_field(KRaftVersionFeature)


@struct
class CurrentLeader:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


@message("0", flexible="0+", api_key=82)
class UpdateRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    current_leader: CurrentLeader = struct_field(CurrentLeader, tag=0)


# Control records


@struct
class VotersRecordVoter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[RaftVoterListener] = array(RaftVoterListener)
    kraft_version_feature: KRaftVersionFeature = struct_field(KRaftVersionFeature)


@message("0", flexible="0+")
class VotersRecord:
    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


@message("0", flexible="0+")
class KRaftVersionRecord:
    version: int = int16()
    kraft_version: int = int16()
