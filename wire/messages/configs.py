"""Declares the messages about configuration, client quotas and SCRAM credentials.

Owns DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, DescribeClientQuotas,
AlterClientQuotas, DescribeUserScramCredentials and AlterUserScramCredentials; nothing but
declarations: field names, order and versions are facts of the Kafka protocol (4.3). Struct names
that Kafka uses in two messages carry the message's name in front. Used by `wire.api`, the
controller and the broker's admin handlers.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    STRING,
    array,
    boolean,
    bytes_,
    error,
    explanation,
    float64,
    int8,
    int32,
    message,
    string,
    struct,
)
from kraftrio.wire.errors import ErrorCode

# --- DescribeConfigs (32) ---


@struct
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(STRING, nullable="0+")


@message("1-4", flexible="4+", api_key=32)
class DescribeConfigsRequest:
    """Null configuration_keys mean every config of the resource."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@struct
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", default=0, ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message("1-4", flexible="4+", api_key=32)
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


# --- AlterConfigs (33) ---


@struct
class AlterableConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message("0-2", flexible="2+", api_key=33)
class AlterConfigsRequest:
    """Replaces the whole set of configs of each resource."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct
class AlterConfigsResourceResponse:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message("0-2", flexible="2+", api_key=33)
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


# --- IncrementalAlterConfigs (44) ---


@struct
class IncrementalAlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@struct
class IncrementalAlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


@message("0-1", flexible="1+", api_key=44)
class IncrementalAlterConfigsRequest:
    """config_operation: 0 set, 1 delete, 2 append, 3 subtract (KIP-339)."""

    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@struct
class IncrementalAlterConfigsResourceResponse:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message("0-1", flexible="1+", api_key=44)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[IncrementalAlterConfigsResourceResponse] = array(
        IncrementalAlterConfigsResourceResponse
    )


# --- DescribeClientQuotas (48) ---


@struct
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@message("0-1", flexible="1+", api_key=48)
class DescribeClientQuotasRequest:
    """match_type: 0 exact name, 1 default entity, 2 any specified entity (KIP-546)."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@struct
class DescribeClientQuotasEntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class ValueData:
    key: str = string()
    value: float = float64()


@struct
class DescribeClientQuotasEntryData:
    entity: list[DescribeClientQuotasEntityData] = array(DescribeClientQuotasEntityData)
    values: list[ValueData] = array(ValueData)


@message("0-1", flexible="1+", api_key=48)
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    entries: list[DescribeClientQuotasEntryData] | None = array(
        DescribeClientQuotasEntryData, nullable="0+"
    )


# --- AlterClientQuotas (49) ---


@struct
class AlterClientQuotasEntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class AlterClientQuotasEntryData:
    entity: list[AlterClientQuotasEntityData] = array(AlterClientQuotasEntityData)
    ops: list[OpData] = array(OpData)


@message("0-1", flexible="1+", api_key=49)
class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasEntryData] = array(AlterClientQuotasEntryData)
    validate_only: bool = boolean()


@struct
class AlterClientQuotasEntryResponse:
    """The outcome for one entity (Kafka calls it EntryData, as in the request)."""

    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    entity: list[AlterClientQuotasEntityData] = array(AlterClientQuotasEntityData)


@message("0-1", flexible="1+", api_key=49)
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasEntryResponse] = array(AlterClientQuotasEntryResponse)


# --- DescribeUserScramCredentials (50) ---


@struct
class UserName:
    name: str = string()


@message("0", flexible="0+", api_key=50)
class DescribeUserScramCredentialsRequest:
    """Null or empty users mean all."""

    users: list[UserName] | None = array(UserName, nullable="0+")


@struct
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@struct
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message("0", flexible="0+", api_key=50)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


# --- AlterUserScramCredentials (51) ---


@struct
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@struct
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


@message("0", flexible="0+", api_key=51)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


@message("0", flexible="0+", api_key=51)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
