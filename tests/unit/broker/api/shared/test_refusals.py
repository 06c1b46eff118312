"""The answer to a request that its sender may not send."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.api.shared.refusals import refuse
from kraftrio.broker.security.api_access import API_ACCESS
from kraftrio.wire.codec.message import decode, encode, spec_of
from kraftrio.wire.codec.schema import ARRAY
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftrio.wire.messages.share_state import (
    ReadShareGroupStatePartition,
    ReadShareGroupStateRequest,
    ReadShareGroupStateTopic,
)
from kraftrio.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.protocol.fitting import fit_version

REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
GUARDED = [key for key, access in API_ACCESS.items() if access.permissions]


def example(cls: type) -> Any:
    """A message, or a part of one, with one entry in each array."""
    value = cls()
    for field in spec_of(cls).fields:
        if field.kind is ARRAY:
            entry = example(field.element) if isinstance(field.element, type) else 7
            setattr(value, field.name, [entry])
    return value


def codes(message: Any) -> list[int]:
    """All error codes in a message."""
    found = []
    for field in spec_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name == "error_code":
            found.append(value)
        elif field.kind is ARRAY and isinstance(field.element, type):
            found += [code for entry in value or () for code in codes(entry)]
    return found


@pytest.mark.parametrize("key", GUARDED)
def test_every_guarded_api_is_answered_with_the_error(key: ApiKey) -> None:
    """In each of its versions, so that clients understand it."""
    api = APIS[key]
    refused = refuse(key, example(api.request), REFUSED)
    assert set(codes(refused)) == {REFUSED}
    for version in range(api.min_version, api.max_version + 1):
        answer = fit_version(refuse(key, example(api.request), REFUSED), version)
        decoded, _ = decode(api.response, version, encode(answer, version))
        # Where a version has no error of the whole, the entries have it, if there are any.
        assert REFUSED in codes(decoded) or (key is ApiKey.DESCRIBE_LOG_DIRS and version < 3)


def test_entries_are_named_as_they_were_asked_about() -> None:
    """By topic and partition, at any depth."""
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name, partitions=[OffsetCommitRequestPartition(partition_index=i) for i in ids]
            )
            for name, ids in (("a", [0, 3]), ("b", [1]))
        ],
    )
    refused = refuse(ApiKey.OFFSET_COMMIT, commit, REFUSED)
    assert [
        (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in refused.topics
    ] == [("a", [(0, REFUSED), (3, REFUSED)]), ("b", [(1, REFUSED)])]


def test_numbers_of_partitions_are_named() -> None:
    """Where a request has nothing but them."""
    markers = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=5, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[2, 4])]
            )
        ]
    )
    [marker] = refuse(ApiKey.WRITE_TXN_MARKERS, markers, REFUSED).markers
    assert marker.producer_id == 5
    [topic] = marker.topics
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (2, REFUSED),
        (4, REFUSED),
    ]


def test_ids_of_topics_are_named() -> None:
    state = ReadShareGroupStateRequest(
        topics=[
            ReadShareGroupStateTopic(
                topic_id=b"t" * 16, partitions=[ReadShareGroupStatePartition(partition=9)]
            )
        ]
    )
    [topic] = refuse(ApiKey.READ_SHARE_GROUP_STATE, state, REFUSED).results
    assert topic.topic_id == b"t" * 16
    assert [(one.partition, one.error_code) for one in topic.partitions] == [(9, REFUSED)]


def test_moves_between_directories_are_answered_by_topic() -> None:
    """The answer knows no directories."""
    moves = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path, topics=[AlterReplicaLogDirTopic(name=path, partitions=[1])]
            )
            for path in "ab"
        ]
    )
    refused = refuse(ApiKey.ALTER_REPLICA_LOG_DIRS, moves, REFUSED)
    assert [
        (topic.topic_name, [one.partition_index for one in topic.partitions])
        for topic in refused.results
    ] == [("a", [1]), ("b", [1])]
