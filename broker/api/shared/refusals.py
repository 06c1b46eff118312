"""The answer to a request that its sender may not send: `refuse`.

Behaviour (Apache Kafka's getErrorResponse): where a response has an error of its own it has that
alone, but for a few; else each of the entries that were asked about has it.

Called by: the dispatcher's guard, for what the authorization table has it ask.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.codec.schema import ARRAY, Field
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    ElectLeadersRequest,
)
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from kraftrio.wire.protocol.api import APIS, ApiKey

# Whose responses repeat an error of the whole in each entry.
_IN_ENTRIES_TOO: Final = (
    AlterPartitionReassignmentsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
)
_ERROR_CODE: Final = "error_code"
_ERROR_MESSAGE: Final = "error_message"


def refuse(api_key: int, request: Any, code: ErrorCode) -> Any:
    """Return the response to a request that says only this error."""
    if isinstance(request, AlterReplicaLogDirsRequest):
        return _refused_moves(request, code)
    if isinstance(request, AlterUserScramCredentialsRequest):  # by user, whatever was to be done
        return error_response(request, code, code.sentence)
    response_class = APIS[ApiKey(api_key)].response
    if _has_error(response_class) and type(request) not in _IN_ENTRIES_TOO:
        return _with_error(response_class(), code)
    return _mirror(response_class, code, request)


def _has_error(response_class: type) -> bool:
    return any(field.name == _ERROR_CODE for field in spec_of(response_class).fields)


def _with_error(response: Any, code: ErrorCode) -> Any:
    response.error_code = code
    if hasattr(response, _ERROR_MESSAGE):
        response.error_message = code.sentence
    return response


def _mirror(response_class: type, code: ErrorCode, asked: Any) -> Any:
    """Return a response that names what was asked about, each with the error.

    Fields are those of the request with the same name. An array of entries is made from the array
    of entries in the request, which has one at most; an entry that is a plain number is the number
    of a partition.
    """
    response = response_class()
    fields = spec_of(response_class).fields
    if isinstance(asked, int):
        setattr(response, fields[0].name, asked)
        return _with_error(response, code)
    entries = _entries(asked)
    for field in fields:
        if field.kind is ARRAY and isinstance(field.element, type):
            if entries:
                mirrored = each(partial(_mirror, field.element, code), entries)
                setattr(response, field.name, mirrored)
        elif hasattr(asked, field.name) and field.name not in (_ERROR_CODE, _ERROR_MESSAGE):
            setattr(response, field.name, getattr(asked, field.name))
    return _with_error(response, code) if _has_error(response_class) else response


def _entries(asked: Any) -> Any:
    arrays: list[Field] = [field for field in spec_of(type(asked)).fields if field.kind is ARRAY]
    return getattr(asked, arrays[0].name) if arrays else None


def _refused_moves(
    request: AlterReplicaLogDirsRequest, code: ErrorCode
) -> AlterReplicaLogDirsResponse:
    """The answer has all topics side by side, whatever directories they were to move to."""
    topics = [topic for directory in request.dirs for topic in directory.topics]
    return AlterReplicaLogDirsResponse(
        results=each(
            lambda topic: AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=each(
                    lambda index: AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    ),
                    topic.partitions,
                ),
            ),
            topics,
        )
    )
