"""Messages of authentication and authorization: SASL, ACLs and delegation tokens.

Declarations only; fields and versions are those of Apache Kafka 4.3. Handlers and clients use
them. SaslHandshake has no flexible version, for servers that know nothing of it; from version 1 on
the mechanism's own bytes travel in SaslAuthenticate (KIP-152), whose version 1 says when to
authenticate again (KIP-368). ACLs have prefixed patterns from version 1 on (KIP-290).
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    STRING,
    array,
    boolean,
    bytes_,
    error,
    explanation,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
)
from kraftrio.wire.errors import ErrorCode

LITERAL_PATTERN_TYPE = 3


# SaslHandshake (key 17) and SaslAuthenticate (key 36)


@message("0-1", api_key=17)
class SaslHandshakeRequest:
    mechanism: str = string()


@message("0-1", api_key=17)
class SaslHandshakeResponse:
    error_code: ErrorCode = error()
    mechanisms: list[str] = array(STRING)


@message("0-2", flexible="2+", api_key=36)
class SaslAuthenticateRequest:
    auth_bytes: bytes = bytes_()


@message("0-2", flexible="2+", api_key=36)
class SaslAuthenticateResponse:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", ignorable=True)


# A principal, within an envelope (KIP-590)


@message("0", flexible="0+")
class DefaultPrincipalData:
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


# DescribeAcls (key 29)


@message("1-3", flexible="2+", api_key=29)
class DescribeAclsRequest:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=LITERAL_PATTERN_TYPE)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@struct
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL_PATTERN_TYPE)
    acls: list[AclDescription] = array(AclDescription)


@message("1-3", flexible="2+", api_key=29)
class DescribeAclsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


# CreateAcls (key 30)


@struct
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=LITERAL_PATTERN_TYPE)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message("1-3", flexible="2+", api_key=30)
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@struct
class AclCreationResult:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


@message("1-3", flexible="2+", api_key=30)
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


# DeleteAcls (key 31)


@struct
class DeleteAclsFilter:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=LITERAL_PATTERN_TYPE)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@message("1-3", flexible="2+", api_key=31)
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@struct
class DeleteAclsMatchingAcl:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL_PATTERN_TYPE)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DeleteAclsFilterResult:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message("1-3", flexible="2+", api_key=31)
class DeleteAclsResponse:
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


# Delegation tokens (keys 38-41), KIP-48; acting for another owner since version 3 (KIP-373)


@struct
class CreatableRenewers:
    principal_type: str = string()
    principal_name: str = string()


@message("1-3", flexible="2+", api_key=38)
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@message("1-3", flexible="2+", api_key=38)
class CreateDelegationTokenResponse:
    error_code: ErrorCode = error()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32()


@message("1-2", flexible="2+", api_key=39)
class RenewDelegationTokenRequest:
    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


@message("1-2", flexible="2+", api_key=39)
class RenewDelegationTokenResponse:
    error_code: ErrorCode = error()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


@message("1-2", flexible="2+", api_key=40)
class ExpireDelegationTokenRequest:
    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()


@message("1-2", flexible="2+", api_key=40)
class ExpireDelegationTokenResponse:
    error_code: ErrorCode = error()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


@struct
class DescribeDelegationTokenOwner:
    principal_type: str = string()
    principal_name: str = string()


@message("1-3", flexible="2+", api_key=41)
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable="0+"
    )


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str = string()
    principal_name: str = string()


@struct
class DescribedDelegationToken:
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@message("1-3", flexible="2+", api_key=41)
class DescribeDelegationTokenResponse:
    error_code: ErrorCode = error()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
