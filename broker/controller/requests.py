"""What a broker must know of the requests that it sends to the active controller.

Owns: the answers to these questions; pure. May a request be sent again when it is unknown whether
its first sending had an effect? Does a response come from a controller that is not the active one?
How long does its sender wait? Is it the broker's own or forwarded for a client? What is the answer
when the controller gives none?

Sending again, per API. A response can be lost after its request has been decided and committed.
- Freely: what asks for a state and not for a change, so that the second time finds it done:
  AlterConfigs, IncrementalAlterConfigs (lists have no repetitions), AlterClientQuotas,
  UpdateFeatures, CreateAcls, ElectLeaders (the second answer may be ELECTION_NOT_NEEDED),
  AlterPartitionReassignments that cancel nothing, AlterUserScramCredentials that delete nothing,
  RenewDelegationToken, and everything that only reads or validates. Registration (by its
  incarnation id), heartbeats and AlterPartition (by the partition epoch: INVALID_UPDATE_VERSION
  makes the leader wait for the metadata) are made for it; of AllocateProducerIds a block is lost at
  worst.
- In doubt: CreateTopics and CreatePartitions. The second time does no harm, but its answer may deny
  what the first time did (TOPIC_ALREADY_EXISTS for the topic just made). Such a denial is replaced
  by REQUEST_TIMED_OUT, which says that it may have happened.
- Never: DeleteTopics (of that name there may be a new topic), DeleteAcls (its answer names what
  went), UnregisterBroker (the broker may have come back), cancellations of reassignments, and every
  API that is not named here. The client gets REQUEST_TIMED_OUT and decides. Apache Kafka sends all
  of them again, and passes the second answer on.

Called by: controller/client.py. Kafka's counterparts: ForwardingManager (KIP-590),
NodeToControllerChannelManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final

from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages import admin, configs, quorum, security

ANSWER_LOST: Final = "The controller's answer was lost; the request may have been carried out."


class Resending(Enum):
    """Whether a request is sent again after its answer was lost; see the module."""

    FREELY = "freely"
    IN_DOUBT = "in doubt"
    NEVER = "never"


# Sent by the broker on its own account, one of a kind at a time; never refused for their number.
_OWN: Final = frozenset(
    {
        quorum.BrokerRegistrationRequest,
        quorum.BrokerHeartbeatRequest,
        quorum.AlterPartitionRequest,
        quorum.AllocateProducerIdsRequest,
        quorum.AssignReplicasToDirsRequest,
        quorum.ControllerRegistrationRequest,
    }
)

_ASKS_FOR_A_STATE: Final = frozenset(
    {
        configs.AlterConfigsRequest,
        configs.IncrementalAlterConfigsRequest,
        configs.AlterClientQuotasRequest,
        configs.DescribeConfigsRequest,
        quorum.UpdateFeaturesRequest,
        quorum.DescribeQuorumRequest,
        admin.ElectLeadersRequest,
        admin.ListPartitionReassignmentsRequest,
        security.CreateAclsRequest,
    }
)


def is_own(request: Any) -> bool:
    """Return whether the broker sends this on its own account, not for a client."""
    return type(request) in _OWN


def resending(request: Any) -> Resending:
    """Return whether a request may be sent again when the answer to its first sending was lost."""
    kind = type(request)
    if kind in _OWN or kind in _ASKS_FOR_A_STATE or getattr(request, "validate_only", False):
        return Resending.FREELY
    if kind is admin.AlterPartitionReassignmentsRequest:
        cancels = any(
            partition.replicas is None for topic in request.topics for partition in topic.partitions
        )
        return Resending.NEVER if cancels else Resending.FREELY
    if isinstance(request, TokenRequest):
        renews = isinstance(request.message, security.RenewDelegationTokenRequest)
        return Resending.FREELY if renews else Resending.NEVER
    if kind is configs.AlterUserScramCredentialsRequest:
        return Resending.NEVER if request.deletions else Resending.FREELY
    if kind in (admin.CreateTopicsRequest, admin.CreatePartitionsRequest):
        return Resending.IN_DOUBT
    return Resending.NEVER


def put_doubt(response: Any) -> None:
    """Put REQUEST_TIMED_OUT where a second answer denies what the first time may have done."""
    if isinstance(response, admin.CreateTopicsResponse):
        _replace(response.topics, ErrorCode.TOPIC_ALREADY_EXISTS)
    elif isinstance(response, admin.CreatePartitionsResponse):
        _replace(response.results, ErrorCode.INVALID_PARTITIONS)


def _replace(results: Iterable[Any], denial: ErrorCode) -> None:
    for result in results:
        if result.error_code == denial:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            result.error_message = ANSWER_LOST


def refusal(request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """Return the response that carries only this error."""
    if isinstance(request, quorum.DescribeQuorumRequest):  # answered by the quorum itself
        return quorum.DescribeQuorumResponse(error_code=code, error_message=message)
    return error_response(request, code, message)


def client_timeout_ms(request: Any) -> int | None:
    """How long the client of a request waits; None when the request does not say.

    A timeout of 0 says nothing: Kafka does not cut such requests short.
    """
    timeout_ms: int = getattr(request, "timeout_ms", 0)
    return timeout_ms if timeout_ms > 0 else None


def is_not_controller(response: Any) -> bool:
    """Return whether the node that answered is not the active controller.

    Such an answer is given to the whole request, so its first item is enough. It comes from a
    node that never was the active controller, or from one that was and gave up what it had not
    committed.
    """
    items = _ITEMS.get(type(response))
    if items is None:
        return bool(response.error_code == ErrorCode.NOT_CONTROLLER)
    answered = items(response)
    return bool(answered) and answered[0].error_code == ErrorCode.NOT_CONTROLLER


def _elections(response: admin.ElectLeadersResponse) -> Sequence[Any]:
    """Version 0 reports an error of the whole request by its partitions alone."""
    if response.error_code != ErrorCode.NONE:
        return [response]
    return [
        result for topic in response.replica_election_results for result in topic.partition_result
    ]


_ITEMS: Final[dict[type[Any], Callable[[Any], Sequence[Any]]]] = {
    admin.CreateTopicsResponse: lambda response: response.topics,
    admin.DeleteTopicsResponse: lambda response: response.responses,
    admin.CreatePartitionsResponse: lambda response: response.results,
    admin.ElectLeadersResponse: _elections,
    configs.AlterConfigsResponse: lambda response: response.responses,
    configs.IncrementalAlterConfigsResponse: lambda response: response.responses,
    configs.AlterClientQuotasResponse: lambda response: response.entries,
    configs.DescribeConfigsResponse: lambda response: response.results,
    configs.AlterUserScramCredentialsResponse: lambda response: response.results,
    security.CreateAclsResponse: lambda response: response.results,
    security.DeleteAclsResponse: lambda response: response.filter_results,
}
