"""Topics and partitions as commands name them: looked up, with the nearest name for a wrong one.

Called by: the commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.arguments.nearest import did_you_mean
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.errors import InvalidTopicError, UnknownTopicOrPartitionError
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.wire.primitives import TopicPartition


async def describe_topics(admin: Admin, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Return topics by name, in the order asked for.

    Raises:
        CommandError: there is no such topic; it suggests the nearest name.
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    results = await admin.describe_topics(wanted, raise_errors=False)
    for name in wanted:
        if isinstance(results.errors.get(name), UnknownTopicOrPartitionError | InvalidTopicError):
            raise await no_topic(admin, name)
    results.values_or_raise()
    return {name: results[name] for name in wanted}


async def no_topic(admin: Admin, name: str) -> CommandError:
    """Return the error for a topic that does not exist."""
    hint = did_you_mean(name, await admin.list_topics(list_internal=True))
    return CommandError(f"there is no topic {name!r}{hint or '; kraftrio topic list shows them'}")


async def partitions_of(
    admin: Admin, topic: str, chosen: Sequence[int] = ()
) -> list[TopicPartition]:
    """Return partitions of a topic: those that are chosen, or all.

    Raises:
        CommandError: there is no such topic or partition.
    """
    described = (await describe_topics(admin, [topic]))[topic]
    for partition in chosen:
        if partition not in described.partitions:
            raise CommandError(
                f"topic {topic!r} has no partition {partition}; the last is"
                f" {max(described.partitions)}"
            )
    numbers = sorted(set(chosen)) if chosen else sorted(described.partitions)
    return [TopicPartition(topic, number) for number in numbers]


def partition_text(item: TopicPartition) -> str:
    """Return a partition's name."""
    return f"{item.topic}-{item.partition}"
