"""A request of every API that the broker advertises, as dicts by Kafka's field names.

What a body leaves out takes its default; fields that a version does not have are not written. The
requests are harmless: they read, or they name things that do not exist, so that each can be sent in
every version, to any broker.
"""

from __future__ import annotations

from typing import Any

from kraftrio.wire.records.batch import Record, build_batch
from tests.conformance.definitions import Definition, FieldDef

Body = dict[str, Any]

ABSENT = "no-such-thing"
ABSENT_ID = b"\x01" * 16


def _batch() -> bytes:
    return bytes(build_batch([Record(0, 1_700_000_000_000, b"k", b"v")]))


def _join(group: str) -> Body:
    return {
        "GroupId": group,
        "SessionTimeoutMs": 10_000,
        "RebalanceTimeoutMs": 10_000,
        "MemberId": ABSENT,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": b"x"}],
        "Reason": "why not",
    }


def bodies(topic: str, id_of_topic: bytes, group: str) -> dict[str, list[Body]]:
    """Return the requests by API, about a topic that exists and a group of the test's own."""
    partition_data = [{"Index": 0, "Records": _batch()}]
    fetched = [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}]
    committed = [{"PartitionIndex": 0, "CommittedOffset": 7, "CommittedMetadata": "m"}]
    commit = {"Name": topic, "TopicId": id_of_topic, "Partitions": committed}
    named = {"Name": topic, "TopicId": id_of_topic, "PartitionIndexes": [0]}
    resource = {"ResourceType": 2, "ResourceName": topic}
    set_config = [{"Name": "retention.ms", "ConfigOperation": 0, "Value": "86400000"}]
    any_acl = {"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}
    one_acl = {
        "ResourceType": 2,
        "ResourceName": topic,
        "ResourcePatternType": 3,
        "Principal": "User:nobody",
        "Host": "*",
        "Operation": 3,
        "PermissionType": 2,
    }
    return {
        "Produce": [
            {
                "Acks": -1,
                "TimeoutMs": 5000,
                "TopicData": [
                    {"Name": topic, "TopicId": id_of_topic, "PartitionData": partition_data},
                    {"Name": ABSENT, "TopicId": ABSENT_ID, "PartitionData": partition_data},
                ],
            },
            {"Acks": 1},
        ],
        "Fetch": [
            {
                "MaxBytes": 1 << 20,
                "Topics": [
                    {"Topic": topic, "TopicId": id_of_topic, "Partitions": fetched},
                    {"Topic": ABSENT, "TopicId": ABSENT_ID, "Partitions": fetched},
                ],
            },
            {},
        ],
        "ListOffsets": [
            {
                "ReplicaId": -1,
                "Topics": [
                    {"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -2}]},
                    {"Name": ABSENT, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]},
                ],
            }
        ],
        "Metadata": [
            {"Topics": [{"Name": topic}, {"Name": ABSENT}], "AllowAutoTopicCreation": False},
            {"Topics": []},
        ],
        "OffsetCommit": [{"GroupId": group, "Topics": [commit]}],
        "OffsetFetch": [
            {
                "GroupId": group,
                "Topics": [{"Name": topic, "PartitionIndexes": [0, 1]}],
                "Groups": [{"GroupId": group, "Topics": [named]}],
            }
        ],
        "FindCoordinator": [{"Key": group, "CoordinatorKeys": [group]}],
        "JoinGroup": [_join(group)],
        "Heartbeat": [{"GroupId": group, "GenerationId": 3, "MemberId": ABSENT}],
        "LeaveGroup": [
            {"GroupId": group, "MemberId": ABSENT, "Members": [{"MemberId": ABSENT, "Reason": "r"}]}
        ],
        "SyncGroup": [
            {
                "GroupId": group,
                "GenerationId": 3,
                "MemberId": ABSENT,
                "ProtocolType": "consumer",
                "ProtocolName": "range",
            }
        ],
        "DescribeGroups": [{"Groups": [group, ABSENT], "IncludeAuthorizedOperations": True}],
        "ListGroups": [{}],
        "ApiVersions": [{"ClientSoftwareName": "cases", "ClientSoftwareVersion": "1.0"}],
        "CreateTopics": [
            {
                "Topics": [
                    {"Name": topic, "NumPartitions": 1, "ReplicationFactor": 1},
                    {"Name": "bad name", "NumPartitions": 1, "ReplicationFactor": 1},
                    {
                        "Name": f"{topic}-2",
                        "NumPartitions": 2,
                        "ReplicationFactor": 1,
                        "Configs": [{"Name": "cleanup.policy", "Value": "compact"}],
                    },
                ],
                "validateOnly": True,
            }
        ],
        "DeleteTopics": [
            {"TopicNames": [ABSENT], "Topics": [{"Name": ABSENT}, {"TopicId": ABSENT_ID}]}
        ],
        "DeleteRecords": [
            {
                "Topics": [
                    {"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": 0}]},
                    {"Name": ABSENT, "Partitions": [{"PartitionIndex": 0, "Offset": 0}]},
                ],
                "TimeoutMs": 5000,
            }
        ],
        "InitProducerId": [{"TransactionalId": None, "TransactionTimeoutMs": 60_000}],
        "OffsetForLeaderEpoch": [
            {
                "Topics": [
                    {"Topic": topic, "Partitions": [{"Partition": 0, "LeaderEpoch": 0}]},
                    {"Topic": ABSENT, "Partitions": [{"Partition": 0, "LeaderEpoch": 0}]},
                ]
            }
        ],
        "DescribeConfigs": [
            {
                "Resources": [
                    resource | {"ConfigurationKeys": ["cleanup.policy", "retention.ms"]},
                    {"ResourceType": 2, "ResourceName": ABSENT, "ConfigurationKeys": None},
                ],
                "IncludeSynonyms": True,
                "IncludeDocumentation": True,
            },
            {"Resources": [resource | {"ConfigurationKeys": None}]},
        ],
        "AlterConfigs": [
            {
                "Resources": [
                    resource | {"Configs": [{"Name": "retention.ms", "Value": "86400000"}]}
                ],
                "ValidateOnly": True,
            }
        ],
        "DescribeLogDirs": [{"Topics": [{"Topic": topic, "Partitions": [0]}]}],
        "CreatePartitions": [
            {
                "Topics": [{"Name": topic, "Count": 1, "Assignments": None}],
                "TimeoutMs": 5000,
                "ValidateOnly": True,
            }
        ],
        "DeleteGroups": [{"GroupsNames": [ABSENT]}],
        "ElectLeaders": [
            {"TopicPartitions": [{"Topic": topic, "Partitions": [0]}], "TimeoutMs": 5000}
        ],
        "IncrementalAlterConfigs": [
            {"Resources": [resource | {"Configs": set_config}], "ValidateOnly": True}
        ],
        "AlterPartitionReassignments": [
            {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Replicas": [1]}]}]}
        ],
        "ListPartitionReassignments": [{"Topics": None}],
        "OffsetDelete": [
            {
                "GroupId": ABSENT,
                "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}],
            }
        ],
        "DescribeQuorum": [
            {"Topics": [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]}
        ],
        "UpdateFeatures": [{"ValidateOnly": True}],
        "DescribeCluster": [{"IncludeClusterAuthorizedOperations": True}],
        "DescribeProducers": [{"Topics": [{"Name": topic, "PartitionIndexes": [0, 9]}]}],
        "UnregisterBroker": [{"BrokerId": 9999}],
        "ConsumerGroupDescribe": [{"GroupIds": [ABSENT]}],
        "ConsumerGroupHeartbeat": [
            # to leave a group that is not there
            {"GroupId": group, "MemberId": ABSENT, "MemberEpoch": -1}
        ],
        "ShareGroupDescribe": [{"GroupIds": [ABSENT]}],
        "DescribeShareGroupOffsets": [
            {
                "Groups": [
                    {"GroupId": ABSENT, "Topics": None},
                    {"GroupId": group, "Topics": [{"TopicName": ABSENT, "Partitions": [0]}]},
                ]
            }
        ],
        "StreamsGroupDescribe": [{"GroupIds": [ABSENT]}],
        "ListTransactions": [
            {
                "StateFilters": ["Ongoing", ABSENT],
                "ProducerIdFilters": [7],
                "DurationFilter": 60_000,
            }
        ],
        "DescribeTransactions": [{"TransactionalIds": [ABSENT]}],
        **_of_transactions(topic, group),
        "AlterReplicaLogDirs": [
            {"Dirs": [{"Path": "/no/such", "Topics": [{"Name": ABSENT, "Partitions": [0]}]}]}
        ],
        "SaslHandshake": [{"Mechanism": "PLAIN"}],
        "SaslAuthenticate": [{"AuthBytes": b"x"}],
        "DescribeAcls": [any_acl],
        "CreateAcls": [{"Creations": [one_acl]}],
        "DeleteAcls": [{"Filters": [any_acl]}],
        "CreateDelegationToken": [{"MaxLifetimeMs": 1000}],
        "RenewDelegationToken": [{"Hmac": b"x", "RenewPeriodMs": 1000}],
        "ExpireDelegationToken": [{"Hmac": b"x", "ExpiryTimePeriodMs": -1}],
        "DescribeDelegationToken": [{"Owners": None}],
        "DescribeUserScramCredentials": [{"Users": [{"Name": ABSENT}]}, {"Users": None}],
        "DescribeClientQuotas": [
            {"Components": [{"EntityType": "user", "MatchType": 2, "Match": None}]}
        ],
        "ListConfigResources": [{}],
        "DescribeTopicPartitions": [{"Topics": [{"Name": topic}, {"Name": ABSENT}]}],
    }


def _of_transactions(topic: str, group: str) -> dict[str, list[Body]]:
    """What changes transactions, of a producer that does not exist."""
    producer = {"ProducerId": 7, "ProducerEpoch": 3}
    transaction = {"TransactionalId": ABSENT, **producer}
    topics = [{"Name": topic, "Partitions": [0]}, {"Name": ABSENT, "Partitions": [0]}]
    committed = [{"PartitionIndex": 0, "CommittedOffset": 7, "CommittedMetadata": "m"}]
    return {
        "AddPartitionsToTxn": [
            {
                "Transactions": [
                    transaction | {"Topics": topics},
                    transaction | {"Topics": topics[:1], "VerifyOnly": True},
                ],
                "V3AndBelowTransactionalId": ABSENT,
                "V3AndBelowProducerId": 7,
                "V3AndBelowProducerEpoch": 3,
                "V3AndBelowTopics": topics,
            }
        ],
        "AddOffsetsToTxn": [transaction | {"GroupId": group}],
        "EndTxn": [transaction | {"Committed": True}],
        "WriteTxnMarkers": [
            {
                "Markers": [
                    producer
                    | {
                        "TransactionResult": False,
                        "Topics": [{"Name": ABSENT, "PartitionIndexes": [0]}],
                        "CoordinatorEpoch": 1,
                        "TransactionVersion": 2,
                    }
                ]
            }
        ],
        "TxnOffsetCommit": [
            transaction
            | {
                "GroupId": group,
                "GenerationId": -1,
                "GroupInstanceId": None,
                "Topics": [{"Name": topic, "Partitions": committed}],
            }
        ],
    }


def complete(definition: Definition, body: Body) -> Body:
    """Fill in the defaults of what a body leaves out."""
    return _complete(definition.fields, body, definition.name)


def _complete(fields: list[FieldDef], body: Body, path: str) -> Body:
    known = {item.name for item in fields}
    assert body.keys() <= known, f"{path} has no {body.keys() - known}"
    values = {}
    for item in fields:
        value = body.get(item.name, item.default)
        if item.is_struct and value is not None:
            here = f"{path}.{item.name}"
            if item.is_array:
                value = [_complete(item.fields, one, here) for one in value]
            else:
                value = _complete(item.fields, value, here)
        values[item.name] = value
    return values
