"""The response that refuses a whole controller request with one error: `error_response`.

Behaviour: APIs with a top-level error carry it there, others in every item that was asked about.
Called by: quorum/active_controller.py, the controller listener (NOT_CONTROLLER), and what
answers for a controller that cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages import admin, configs, quorum, security


def error_response(request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """Return the response of the request's API that says only this error."""
    maker = _MAKERS.get(type(request))
    assert maker is not None, f"{type(request).__name__} is not a request of the controller"
    return maker(request, code, message)


def _create_topics(request: admin.CreateTopicsRequest, code: ErrorCode, text: str | None) -> Any:
    return admin.CreateTopicsResponse(
        topics=_each_name(
            lambda name: admin.CreatableTopicResult(name=name, error_code=code, error_message=text),
            request.topics,
        )
    )


def _each_name(make: Callable[[str], Any], topics: list[Any]) -> list[Any]:
    """Answer for each name once, unless there are too many."""
    if isinstance(topics, list):
        return [make(name) for name in dict.fromkeys(topic.name for topic in topics)]
    return each(lambda topic: make(topic.name), topics)


def _delete_topics(request: admin.DeleteTopicsRequest, code: ErrorCode, text: str | None) -> Any:
    if request.topics:
        return admin.DeleteTopicsResponse(
            responses=each(
                lambda topic: admin.DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=text
                ),
                request.topics,
            )
        )
    return admin.DeleteTopicsResponse(
        responses=each(
            lambda name: admin.DeletableTopicResult(name=name, error_code=code, error_message=text),
            request.topic_names,
        )
    )


def _create_partitions(
    request: admin.CreatePartitionsRequest, code: ErrorCode, text: str | None
) -> Any:
    return admin.CreatePartitionsResponse(
        results=_each_name(
            lambda name: admin.CreatePartitionsTopicResult(
                name=name, error_code=code, error_message=text
            ),
            request.topics,
        )
    )


def _elect_leaders(request: admin.ElectLeadersRequest, code: ErrorCode, text: str | None) -> Any:
    # Version 0 has no top-level error, so the items say it as well.
    return admin.ElectLeadersResponse(
        error_code=code,
        replica_election_results=each(
            lambda topic: admin.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=each(
                    lambda index: admin.PartitionResult(
                        partition_id=index, error_code=code, error_message=text
                    ),
                    topic.partitions,
                ),
            ),
            request.topic_partitions or [],
        ),
    )


def _alter_partition_reassignments(
    request: admin.AlterPartitionReassignmentsRequest, code: ErrorCode, text: str | None
) -> Any:
    return admin.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=text,
        responses=each(
            lambda topic: admin.ReassignableTopicResponse(
                name=topic.name,
                partitions=each(
                    lambda partition: admin.ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=code,
                        error_message=text,
                    ),
                    topic.partitions,
                ),
            ),
            request.topics,
        ),
    )


def _list_partition_reassignments(
    _request: admin.ListPartitionReassignmentsRequest, code: ErrorCode, text: str | None
) -> Any:
    return admin.ListPartitionReassignmentsResponse(error_code=code, error_message=text)


def _alter_configs(request: configs.AlterConfigsRequest, code: ErrorCode, text: str | None) -> Any:
    return configs.AlterConfigsResponse(
        responses=each(
            lambda resource: configs.AlterConfigsResourceResponse(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            ),
            request.resources,
        )
    )


def _incremental_alter_configs(
    request: configs.IncrementalAlterConfigsRequest, code: ErrorCode, text: str | None
) -> Any:
    return configs.IncrementalAlterConfigsResponse(
        responses=each(
            lambda resource: configs.IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            ),
            request.resources,
        )
    )


def _alter_client_quotas(
    request: configs.AlterClientQuotasRequest, code: ErrorCode, text: str | None
) -> Any:
    return configs.AlterClientQuotasResponse(
        entries=each(
            lambda entry: configs.AlterClientQuotasEntryResponse(
                error_code=code, error_message=text, entity=entry.entity
            ),
            request.entries,
        )
    )


def _create_acls(request: security.CreateAclsRequest, code: ErrorCode, text: str | None) -> Any:
    result = security.AclCreationResult(error_code=code, error_message=text)
    return security.CreateAclsResponse(results=each(lambda _: result, request.creations))


def _delete_acls(request: security.DeleteAclsRequest, code: ErrorCode, text: str | None) -> Any:
    result = security.DeleteAclsFilterResult(error_code=code, error_message=text)
    return security.DeleteAclsResponse(filter_results=each(lambda _: result, request.filters))


def _alter_user_scram_credentials(
    request: configs.AlterUserScramCredentialsRequest, code: ErrorCode, text: str | None
) -> Any:
    users = [one.name for one in request.deletions] + [one.name for one in request.upsertions]
    return configs.AlterUserScramCredentialsResponse(
        results=each(
            lambda user: configs.AlterUserScramCredentialsResult(
                user=user, error_code=code, error_message=text
            ),
            list(dict.fromkeys(users)),
        )
    )


def _update_features(
    _request: quorum.UpdateFeaturesRequest, code: ErrorCode, text: str | None
) -> Any:
    return quorum.UpdateFeaturesResponse(error_code=code, error_message=text)


def _unregister_broker(
    _request: quorum.UnregisterBrokerRequest, code: ErrorCode, text: str | None
) -> Any:
    return quorum.UnregisterBrokerResponse(error_code=code, error_message=text)


def _top_level(response_class: Callable[..., Any]) -> Callable[[Any, ErrorCode, str | None], Any]:
    def make(_request: Any, code: ErrorCode, _text: str | None) -> Any:
        return response_class(error_code=code)

    return make


def _token_request(request: TokenRequest, code: ErrorCode, text: str | None) -> Any:
    return error_response(request.message, code, text)


_MAKERS: Final[dict[type[Any], Callable[[Any, ErrorCode, str | None], Any]]] = {
    admin.CreateTopicsRequest: _create_topics,
    admin.DeleteTopicsRequest: _delete_topics,
    admin.CreatePartitionsRequest: _create_partitions,
    admin.ElectLeadersRequest: _elect_leaders,
    admin.AlterPartitionReassignmentsRequest: _alter_partition_reassignments,
    admin.ListPartitionReassignmentsRequest: _list_partition_reassignments,
    configs.AlterConfigsRequest: _alter_configs,
    configs.IncrementalAlterConfigsRequest: _incremental_alter_configs,
    configs.AlterClientQuotasRequest: _alter_client_quotas,
    security.CreateAclsRequest: _create_acls,
    security.DeleteAclsRequest: _delete_acls,
    configs.AlterUserScramCredentialsRequest: _alter_user_scram_credentials,
    TokenRequest: _token_request,
    security.CreateDelegationTokenRequest: _top_level(security.CreateDelegationTokenResponse),
    security.RenewDelegationTokenRequest: _top_level(security.RenewDelegationTokenResponse),
    security.ExpireDelegationTokenRequest: _top_level(security.ExpireDelegationTokenResponse),
    quorum.UpdateFeaturesRequest: _update_features,
    quorum.UnregisterBrokerRequest: _unregister_broker,
    quorum.BrokerRegistrationRequest: _top_level(quorum.BrokerRegistrationResponse),
    quorum.BrokerHeartbeatRequest: _top_level(quorum.BrokerHeartbeatResponse),
    quorum.AllocateProducerIdsRequest: _top_level(quorum.AllocateProducerIdsResponse),
    quorum.AlterPartitionRequest: _top_level(quorum.AlterPartitionResponse),
    quorum.AssignReplicasToDirsRequest: _top_level(quorum.AssignReplicasToDirsResponse),
}
