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
_COMMITTED: Body = {"PartitionIndex": 0, "CommittedOffset": 7, "CommittedMetadata": "m"}


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
    return {
        **_of_data(topic, id_of_topic),
        **_of_groups(topic, id_of_topic, group),
        **_of_modern_groups(topic, group),
        **_of_share_groups(id_of_topic, group),
        **_of_share_states(group),
        **_of_topics(topic),
        **_of_configs(topic),
        **_of_cluster(topic),
        **_of_security(topic),
        **_of_transactions(topic, group),
    }


def _of_data(topic: str, id_of_topic: bytes) -> dict[str, list[Body]]:
    """What reads and writes records and their offsets."""
    partition_data = [{"Index": 0, "Records": _batch()}]
    fetched = [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}]
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
        "DeleteRecords": [
            {
                "Topics": [
                    {"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": 0}]},
                    {"Name": ABSENT, "Partitions": [{"PartitionIndex": 0, "Offset": 0}]},
                ],
                "TimeoutMs": 5000,
            }
        ],
        "OffsetForLeaderEpoch": [
            {
                "Topics": [
                    {"Topic": topic, "Partitions": [{"Partition": 0, "LeaderEpoch": 0}]},
                    {"Topic": ABSENT, "Partitions": [{"Partition": 0, "LeaderEpoch": 0}]},
                ]
            }
        ],
        "DescribeProducers": [{"Topics": [{"Name": topic, "PartitionIndexes": [0, 9]}]}],
        "DescribeTopicPartitions": [{"Topics": [{"Name": topic}, {"Name": ABSENT}]}],
    }


def _of_groups(topic: str, id_of_topic: bytes, group: str) -> dict[str, list[Body]]:
    """What is asked about groups, of members that do not exist."""
    commit = {"Name": topic, "TopicId": id_of_topic, "Partitions": [_COMMITTED]}
    named = {"Name": topic, "TopicId": id_of_topic, "PartitionIndexes": [0]}
    return {
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
        "DeleteGroups": [{"GroupsNames": [ABSENT]}],
        "OffsetDelete": [
            {
                "GroupId": ABSENT,
                "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}],
            }
        ],
    }


def _of_modern_groups(topic: str, group: str) -> dict[str, list[Body]]:
    """The same about the groups whose partitions the broker assigns."""
    leave = {"GroupId": group, "MemberId": ABSENT, "MemberEpoch": -1}  # a group that is not there
    altered = {"TopicName": ABSENT, "Partitions": [{"PartitionIndex": 0, "StartOffset": 7}]}
    return {
        "ConsumerGroupDescribe": [{"GroupIds": [ABSENT]}],
        "ConsumerGroupHeartbeat": [leave],
        "ShareGroupHeartbeat": [leave],
        "ShareGroupDescribe": [{"GroupIds": [ABSENT]}],
        "AlterShareGroupOffsets": [{"GroupId": group, "Topics": [altered]}],
        "DeleteShareGroupOffsets": [{"GroupId": ABSENT, "Topics": [{"TopicName": topic}]}],
        "DescribeShareGroupOffsets": [
            {
                "Groups": [
                    {"GroupId": ABSENT, "Topics": None},
                    {"GroupId": group, "Topics": [{"TopicName": ABSENT, "Partitions": [0]}]},
                ]
            }
        ],
        "StreamsGroupHeartbeat": [leave],
        "StreamsGroupDescribe": [{"GroupIds": [ABSENT]}],
    }


def _of_share_states(group: str) -> dict[str, list[Body]]:
    """What brokers ask the share coordinator, about a topic that is not there."""
    batch = {"FirstOffset": 3, "LastOffset": 5, "DeliveryState": 2, "DeliveryCount": 1}
    fields: dict[str, Body] = {
        "InitializeShareGroupState": {"StateEpoch": 1, "StartOffset": 3},
        "ReadShareGroupState": {"LeaderEpoch": 1},
        "WriteShareGroupState": {
            "StateEpoch": 1,
            "LeaderEpoch": 1,
            "StartOffset": 3,
            "DeliveryCompleteCount": 2,
            "StateBatches": [batch],
        },
        "DeleteShareGroupState": {},
        "ReadShareGroupStateSummary": {"LeaderEpoch": 1},
    }
    return {
        name: [
            {
                "GroupId": group,
                "Topics": [
                    {"TopicId": ABSENT_ID, "Partitions": [{"Partition": 0, **of_partition}]}
                ],
            }
        ]
        for name, of_partition in fields.items()
    }


def _of_share_groups(id_of_topic: bytes, group: str) -> dict[str, list[Body]]:
    """What members of share groups fetch and acknowledge."""
    return {
        "ShareFetch": [
            {
                "GroupId": group,
                "MemberId": ABSENT,
                "MaxBytes": 1 << 20,
                "MaxRecords": 10,
                "BatchSize": 10,
                "Topics": [
                    {"TopicId": id_of_topic, "Partitions": [{"PartitionIndex": 0}]},
                    {"TopicId": ABSENT_ID, "Partitions": [{"PartitionIndex": 0}]},
                ],
            },
            {"GroupId": group, "MemberId": ABSENT, "ShareSessionEpoch": -1, "MaxBytes": 0},
        ],
        "ShareAcknowledge": [
            {
                "GroupId": group,
                "MemberId": ABSENT,
                "ShareSessionEpoch": 3,
                "Topics": [
                    {
                        "TopicId": id_of_topic,
                        "Partitions": [
                            {
                                "PartitionIndex": 0,
                                "AcknowledgementBatches": [
                                    {"FirstOffset": 0, "LastOffset": 2, "AcknowledgeTypes": [1]},
                                    {"FirstOffset": 3, "LastOffset": 4, "AcknowledgeTypes": [2, 3]},
                                ],
                            }
                        ],
                    }
                ],
            }
        ],
    }


def _of_topics(topic: str) -> dict[str, list[Body]]:
    """What changes topics; nothing is changed."""
    return {
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
        "CreatePartitions": [
            {
                "Topics": [{"Name": topic, "Count": 1, "Assignments": None}],
                "TimeoutMs": 5000,
                "ValidateOnly": True,
            }
        ],
        "ElectLeaders": [
            {"TopicPartitions": [{"Topic": topic, "Partitions": [0]}], "TimeoutMs": 5000}
        ],
        "AlterPartitionReassignments": [
            {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Replicas": [1]}]}]}
        ],
        "ListPartitionReassignments": [{"Topics": None}],
    }


def _of_configs(topic: str) -> dict[str, list[Body]]:
    """What describes and changes settings."""
    resource = {"ResourceType": 2, "ResourceName": topic}
    set_config = [{"Name": "retention.ms", "ConfigOperation": 0, "Value": "86400000"}]
    client_quota = {
        "Entity": [{"EntityType": "client-id", "EntityName": ABSENT}],
        "Ops": [{"Key": "producer_byte_rate", "Value": 1e9, "Remove": False}],
    }
    return {
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
        "IncrementalAlterConfigs": [
            {"Resources": [resource | {"Configs": set_config}], "ValidateOnly": True}
        ],
        "ListConfigResources": [{}],
        "DescribeClientQuotas": [
            {"Components": [{"EntityType": "user", "MatchType": 2, "Match": None}]}
        ],
        "AlterClientQuotas": [{"Entries": [client_quota], "ValidateOnly": True}],
    }


def _of_cluster(topic: str) -> dict[str, list[Body]]:
    """What is asked about the cluster and its nodes."""
    return {
        "ApiVersions": [{"ClientSoftwareName": "cases", "ClientSoftwareVersion": "1.0"}],
        "DescribeLogDirs": [{"Topics": [{"Topic": topic, "Partitions": [0]}]}],
        "AlterReplicaLogDirs": [
            {"Dirs": [{"Path": "/no/such", "Topics": [{"Name": ABSENT, "Partitions": [0]}]}]}
        ],
        "DescribeQuorum": [
            {"Topics": [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]}
        ],
        "UpdateFeatures": [{"ValidateOnly": True}],
        "DescribeCluster": [{"IncludeClusterAuthorizedOperations": True}],
        "UnregisterBroker": [{"BrokerId": 9999}],
        "AddRaftVoter": [{"VoterId": 9999, "VoterDirectoryId": b"v" * 16}],
        "RemoveRaftVoter": [{"VoterId": 9999, "VoterDirectoryId": b"v" * 16}],
    }


def _of_security(topic: str) -> dict[str, list[Body]]:
    """What is asked about principals and their rights."""
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
        "SaslHandshake": [{"Mechanism": "PLAIN"}],
        "SaslAuthenticate": [{"AuthBytes": b"x"}],
        "DescribeAcls": [any_acl],
        "CreateAcls": [{"Creations": [one_acl]}],
        "DeleteAcls": [{"Filters": [any_acl]}],
        "CreateDelegationToken": [{"MaxLifetimeMs": 1000}],
        "RenewDelegationToken": [{"Hmac": b"x", "RenewPeriodMs": 1000}],
        "ExpireDelegationToken": [{"Hmac": b"x", "ExpiryTimePeriodMs": -1}],
        "DescribeDelegationToken": [{"Owners": None}],
        "AlterUserScramCredentials": [
            {"Deletions": [{"Name": ABSENT, "Mechanism": 1}], "Upsertions": []}
        ],
        "DescribeUserScramCredentials": [{"Users": [{"Name": ABSENT}]}, {"Users": None}],
    }


def _of_transactions(topic: str, group: str) -> dict[str, list[Body]]:
    """What is asked about transactions, of a producer that does not exist."""
    producer = {"ProducerId": 7, "ProducerEpoch": 3}
    transaction = {"TransactionalId": ABSENT, **producer}
    topics = [{"Name": topic, "Partitions": [0]}, {"Name": ABSENT, "Partitions": [0]}]
    return {
        "InitProducerId": [{"TransactionalId": None, "TransactionTimeoutMs": 60_000}],
        "ListTransactions": [
            {
                "StateFilters": ["Ongoing", ABSENT],
                "ProducerIdFilters": [7],
                "DurationFilter": 60_000,
            }
        ],
        "DescribeTransactions": [{"TransactionalIds": [ABSENT]}],
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
                "Topics": [{"Name": topic, "Partitions": [_COMMITTED]}],
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
