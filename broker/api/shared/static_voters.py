"""What is said to who would change the voters of the metadata quorum (KIP-853), which are static.

Behaviour (Apache Kafka's while its kraft.version is 0): another cluster's id is
INCONSISTENT_CLUSTER_ID; a voter without an id or a directory, and a new one without an endpoint of
the controllers' listener, are INVALID_REQUEST; everything else is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

_NO_DIRECTORY = bytes(16)
_USUAL_LISTENER = "CONTROLLER"  # where a single node has none


def check_cluster_id(named: str | None, cluster_id: str) -> None:
    """Raise a KafkaError when a request names another cluster than this one, if it is known."""
    if named is not None and cluster_id and named != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{named}" doesn\'t match the cluster id "{cluster_id}"',
        )


def refuse_to_add(
    request: AddRaftVoterRequest, cluster_id: str, controller_listeners: Sequence[str]
) -> AddRaftVoterResponse:
    """Say why there will be no new voter; the first of the listeners is the one it must have."""
    try:
        check_cluster_id(request.cluster_id, cluster_id)
        _check_voter("Add", request)
        name = controller_listeners[0] if controller_listeners else _USUAL_LISTENER
        if not any(listener.name == name for listener in request.listeners):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint for the default listener {name}",
            )
        raise _unsupported("adding")
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)


def refuse_to_remove(request: RemoveRaftVoterRequest, cluster_id: str) -> RemoveRaftVoterResponse:
    """Say why the voter stays."""
    try:
        check_cluster_id(request.cluster_id, cluster_id)
        _check_voter("Remove", request)
        raise _unsupported("removing")
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


def _check_voter(change: str, request: AddRaftVoterRequest | RemoveRaftVoterRequest) -> None:
    if request.voter_id < 0 or request.voter_directory_id == _NO_DIRECTORY:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{change} voter request didn't include a valid voter"
        )


def _unsupported(doing: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {doing} voter because the kraft.version feature is 0",
    )
