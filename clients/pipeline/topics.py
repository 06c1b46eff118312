"""The topics of the pipeline on the cluster: found, made, and asked for their ends.

Called by: `ingest`, `query`, `report`, all through the admin client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import NewTopic, OffsetSpec
from kraftrio.clients.errors import (
    NetworkError,
    TimedOutError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.clients.pipeline.failures import PipelineError
from kraftrio.wire.primitives import TopicPartition, uuid_to_text

FIRST_TIMEOUT_MS: Final = 10_000
CALL_TIMEOUT_MS: Final = 30_000
DEFAULT_PARTITIONS: Final = 3
_MOST_REPLICAS: Final = 3


async def brokers_of(admin: Admin, servers: str) -> tuple[str, int]:
    """Return the cluster's id and how many brokers it has.

    Raises:
        PipelineError: no broker answers.
    """
    try:
        described = await admin.describe_cluster(timeout_ms=FIRST_TIMEOUT_MS)
    except (TimedOutError, NetworkError):
        raise PipelineError(f"no broker answers at {servers}") from None
    return described.cluster_id, len(described.nodes)


async def find(admin: Admin, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Return those of some topics that are there.

    Raises:
        KafkaClientError: a topic is there and cannot be described.
    """
    results = await admin.describe_topics(names, timeout_ms=CALL_TIMEOUT_MS, raise_errors=False)
    for error in results.errors.values():
        if not isinstance(error, UnknownTopicOrPartitionError):
            raise error
    return {name: results[name] for name in results if name not in results.errors}


async def require(admin: Admin, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Return topics that must be there.

    Raises:
        PipelineError: one is not.
    """
    wanted = list(names)
    found = await find(admin, wanted)
    for name in wanted:
        if name not in found:
            raise PipelineError(
                f"the topic {name} is not there; scripts/pipeline ingest makes and fills it"
            )
    return found


async def make(
    admin: Admin,
    wanted: Mapping[str, Mapping[str, str]],
    broker_count: int,
    *,
    partitions: int = DEFAULT_PARTITIONS,
    replication_factor: int | None = None,
) -> dict[str, TopicMetadata]:
    """Make those topics that are not there yet, and return all.

    Args:
        wanted: the settings of each topic.
        replication_factor: None is 3, or the number of brokers if there are fewer.
    """
    present = await find(admin, wanted)
    replicas = replication_factor or min(_MOST_REPLICAS, broker_count)
    missing = [
        NewTopic(name, partitions, replicas, configs)
        for name, configs in wanted.items()
        if name not in present
    ]
    if missing:
        results = await admin.create_topics(missing, timeout_ms=CALL_TIMEOUT_MS, raise_errors=False)
        for name, error in results.errors.items():
            if not isinstance(error, TopicExistsError):
                raise PipelineError(f"the topic {name} cannot be made: {error}")
    return await _wait_led(admin, wanted)


async def _wait_led(admin: Admin, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Return topics once each of their partitions has a leader: asking for its end waits for it."""
    wanted = list(names)
    with trio.move_on_after(CALL_TIMEOUT_MS / 1000):
        while True:
            found = await find(admin, wanted)
            if len(found) == len(wanted):
                await ends(admin, found)
                return found
            await trio.sleep(0.1)  # not all brokers know it yet
    raise PipelineError("the topics were made, but their partitions find no leaders")


async def ends(admin: Admin, topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, int]:
    """Return the end of each partition of some topics."""
    return await _offsets(admin, topics, OffsetSpec.LATEST)


async def starts(admin: Admin, topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, int]:
    """Return the start of each partition of some topics."""
    return await _offsets(admin, topics, OffsetSpec.EARLIEST)


async def _offsets(
    admin: Admin, topics: Mapping[str, TopicMetadata], which: OffsetSpec
) -> dict[TopicPartition, int]:
    wanted = {
        TopicPartition(name, index): int(which)
        for name, topic in topics.items()
        for index in topic.partitions
    }
    listed = await admin.list_offsets(wanted, timeout_ms=CALL_TIMEOUT_MS)
    return {where: found.offset for where, found in listed.items()}


def ids_of(topics: Mapping[str, TopicMetadata]) -> dict[str, str]:
    """Return the ids of topics as text."""
    return {name: uuid_to_text(topics[name].topic_id) for name in sorted(topics)}
