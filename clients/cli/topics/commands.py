"""`kraftrio topic`: list, describe, create, alter, delete, add-partitions, delete-records, offsets.

Called by: the root of the command line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import click

from kraftrio.base.clock import wall_ms
from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    OpType,
    Results,
)
from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.clients.cli.names import TOPIC
from kraftrio.clients.cli.output import Column, Row, joined, number
from kraftrio.clients.cli.partitions import describe_topics, partition_text, partitions_of
from kraftrio.clients.cli.session import Session, cluster_command, confirm, pairs, report
from kraftrio.clients.cli.topics.offsets import offsets_before, topic_offsets
from kraftrio.clients.errors import KafkaClientError, TopicExistsError, UnknownTopicOrPartitionError
from kraftrio.clients.metadata import PartitionMetadata, TopicMetadata
from kraftrio.wire.primitives import TopicPartition

T = TypeVar("T")

_LIST = (
    Column("topic"),
    number("partitions"),
    number("replication_factor", "replicas"),
    number("under_replicated"),
    number("without_leader"),
)
_PARTITIONS = (
    Column("topic"),
    number("partition"),
    number("leader"),
    number("leader_epoch", "epoch"),
    Column("replicas", show=joined),
    Column("isr", show=joined),
    Column("offline", show=joined),
)
_OFFSETS = (
    Column("topic"),
    number("partition"),
    number("earliest"),
    number("latest"),
    number("records"),
    number("offset"),
    Column("timestamp"),
)


@click.group("topic", cls=LazyGroup)
def topic() -> None:
    """Topics: list, describe, create, change, delete."""


@topic.command("list", epilog="Example: kraftrio topic list --json")
@click.option("--internal", is_flag=True, help="Also Kafka's own topics.")
@cluster_command
async def list_topics(session: Session, internal: bool) -> None:
    """List the topics."""
    async with session.admin() as admin:
        names = await admin.list_topics(list_internal=internal)
        described = await describe_topics(admin, names)
    session.output.rows(_LIST, [_summary(each) for each in described.values()])


@topic.command("describe", epilog="Example: kraftrio topic describe orders")
@click.argument("names", metavar="TOPIC...", nargs=-1, type=TOPIC, required=True)
@cluster_command
async def describe(session: Session, names: tuple[str, ...]) -> None:
    """Show partitions, leaders, replicas and settings that are not the defaults."""
    async with session.admin() as admin:
        described = await describe_topics(admin, names)
        settings = await _own_settings(admin, described)
    output = session.output
    for index, (name, found) in enumerate(described.items()):
        rows = [_partition_row(found, each) for each in found.partitions.values()]
        if output.as_json:
            output.rows(_PARTITIONS, [{**row, "configs": settings[name]} for row in rows])
            continue
        if index:
            output.line()
        shown = " ".join(f"{key}={value}" for key, value in settings[name].items())
        output.rows(_PARTITIONS, rows, title=f"settings: {shown}" if shown else "")


@topic.command("create", epilog="Example: kraftrio topic create orders --partitions 3")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--partitions", type=click.IntRange(min=1), metavar="N", help="Default: the cluster's."
)
@click.option(
    "--replication-factor", type=click.IntRange(min=1), metavar="N", help="Default: the cluster's."
)
@click.option(
    "--replica-assignment",
    metavar="ID:ID,...",
    help="The brokers of each partition, the preferred leader first, such as 1:2,2:3.",
)
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A topic setting.")
@click.option("--if-not-exists", is_flag=True, help="Do not fail if a topic exists.")
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and create nothing.")
@cluster_command
async def create(
    session: Session,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    assignment = None if replica_assignment is None else _assignment(replica_assignment)
    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment already says how many partitions there are")
    configs = pairs(settings)
    wanted = [
        NewTopic(name, partitions or -1, replication_factor or -1, configs, assignment)
        for name in dict.fromkeys(names)
    ]
    async with session.admin() as admin:
        results = await admin.create_topics(wanted, validate_only=dry_run, raise_errors=False)
    if if_not_exists:
        results = _without(results, TopicExistsError)
    verb = "would be created" if dry_run else "created"

    def done(name: str, made: object) -> None:
        row = {"topic": name, "created": not dry_run}
        session.output.done(f"topic {name} {verb}", row)

    report(results, done, lambda name: f"topic {name!r}")


@topic.command("alter", epilog="Example: kraftrio topic alter orders --set retention.ms=3600000")
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="Set a setting.")
@click.option("--unset", metavar="NAME", multiple=True, help="Return a setting to its default.")
@cluster_command
async def alter(
    session: Session, name: str, settings: tuple[str, ...], unset: tuple[str, ...]
) -> None:
    """Change settings of a topic; the others stay as they are."""
    operations = [AlterConfigOp(key, value) for key, value in pairs(settings).items()]
    operations += [AlterConfigOp(key, None, OpType.DELETE) for key in unset]
    if not operations:
        raise click.UsageError("nothing to change: give --set NAME=VALUE or --unset NAME")
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    async with session.admin() as admin:
        await describe_topics(admin, [name])
        await admin.incremental_alter_configs({resource: operations})
    session.output.done(
        f"topic {name} changed", {"topic": name, "changed": [each.name for each in operations]}
    )


@topic.command("delete", epilog="Example: kraftrio topic delete orders")
@click.argument("names", metavar="TOPIC...", nargs=-1, type=TOPIC, required=True)
@click.option("--if-exists", is_flag=True, help="Do not fail if a topic does not exist.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_command
async def delete(session: Session, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics with all their records."""
    async with session.admin() as admin:
        if not if_exists:
            await describe_topics(admin, names)
        confirm(f"delete {', '.join(names)} with all records?", yes)
        results = await admin.delete_topics(dict.fromkeys(names), raise_errors=False)
    if if_exists:
        results = _without(results, UnknownTopicOrPartitionError)

    def done(name: str, nothing: None) -> None:
        session.output.done(f"topic {name} deleted", {"topic": name, "deleted": True})

    report(results, done, lambda name: f"topic {name!r}")


@topic.command("add-partitions", epilog="Example: kraftrio topic add-partitions orders --total 6")
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--total",
    type=click.IntRange(min=1),
    metavar="N",
    required=True,
    help="The new number of partitions.",
)
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and change nothing.")
@cluster_command
async def add_partitions(session: Session, name: str, total: int, dry_run: bool) -> None:
    """Add partitions to a topic; keys may then go to other ones than before."""
    async with session.admin() as admin:
        before = len((await describe_topics(admin, [name]))[name].partitions)
        await admin.create_partitions({name: total}, validate_only=dry_run)
    verb = "would have" if dry_run else "has"
    session.output.done(
        f"topic {name} {verb} {total} partitions (before: {before})",
        {"topic": name, "partitions": before if dry_run else total, "before": before},
    )


@topic.command(
    "delete-records",
    epilog="Example: kraftrio topic delete-records orders --partition 0 --before 1200",
)
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--before",
    metavar="OFFSET|MOMENT|end",
    required=True,
    help="An offset, a time such as '7d ago' or 2026-11-01, or end.",
)
@click.option("--partition", "chosen", type=int, multiple=True, metavar="N", help="Default: all.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_command
async def delete_records(
    session: Session, name: str, before: str, chosen: tuple[int, ...], yes: bool
) -> None:
    """Delete the oldest records of a topic."""
    async with session.admin() as admin:
        items = await partitions_of(admin, name, chosen)
        offsets = await offsets_before(admin, items, before, wall_ms())
        shown = ", ".join(f"{partition_text(item)} to {offset}" for item, offset in offsets.items())
        confirm(f"delete the records of {shown}?", yes)
        results = await admin.delete_records(offsets, raise_errors=False)

    def done(item: TopicPartition, start: int) -> None:
        session.output.done(
            f"{partition_text(item)} begins with offset {start}",
            {"topic": item.topic, "partition": item.partition, "log_start_offset": start},
        )

    report(results, done, partition_text)


@topic.command("offsets", epilog="Example: kraftrio topic offsets orders --at '5m ago'")
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--at", metavar="MOMENT", help="Also the offset of the first record at or after that time."
)
@click.option("--partition", "chosen", type=int, multiple=True, metavar="N", help="Default: all.")
@click.option("--read-committed", is_flag=True, help="Count no records of open transactions.")
@cluster_command
async def offsets(
    session: Session, name: str, at: str | None, chosen: tuple[int, ...], read_committed: bool
) -> None:
    """Show where the partitions begin and end."""
    async with session.admin() as admin:
        items = await partitions_of(admin, name, chosen)
        rows = await topic_offsets(admin, items, at, wall_ms(), read_committed=read_committed)
    columns = _OFFSETS if at is not None else _OFFSETS[:5]
    session.output.rows(columns, rows)


def _summary(described: TopicMetadata) -> Row:
    partitions = described.partitions.values()
    return {
        "topic": described.name,
        "partitions": len(partitions),
        "replication_factor": max((len(each.replicas) for each in partitions), default=0),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
        "without_leader": sum(each.leader_id < 0 for each in partitions),
        "internal": described.is_internal,
    }


def _partition_row(described: TopicMetadata, partition: PartitionMetadata) -> Row:
    return {
        "topic": described.name,
        "partition": partition.partition,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline": partition.offline_replicas,
    }


async def _own_settings(admin: Admin, names: Iterable[str]) -> dict[str, dict[str, str | None]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found = await admin.describe_configs(resources)
    return {
        resource.name: {
            entry.name: entry.value
            for entry in entries.values()
            if entry.source.name == "TOPIC_CONFIG"
        }
        for resource, entries in found.items()
    }


def _assignment(text: str) -> dict[int, list[int]]:
    try:
        return {
            partition: [int(broker) for broker in brokers.split(":")]
            for partition, brokers in enumerate(text.split(","))
        }
    except ValueError:
        raise click.UsageError(
            f"--replica-assignment {text!r}: expected ids of brokers such as 1:2,2:3"
        ) from None


def _without(results: Results[str, T], kind: type[KafkaClientError]) -> Results[str, T]:
    """Return results without the errors of a kind."""
    kept = {name: error for name, error in results.errors.items() if not isinstance(error, kind)}
    values = {name: results[name] for name in results if name not in results.errors}
    return Results(values, kept)
