"""`kraftrio reassign`: plan, run, progress, throttle, cancel.

A plan is lines of JSON as `plan --json` prints them, or a file for Kafka's own tool.

Called by: the root of the command line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    OpType,
)
from kraftrio.clients.cli.cluster.placement import plan_placement
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.clients.cli.names import TOPIC
from kraftrio.clients.cli.output import Column, Row, joined, note, number
from kraftrio.clients.cli.partitions import describe_topics, partition_text
from kraftrio.clients.cli.session import Session, cluster_command, report
from kraftrio.wire.primitives import TopicPartition

Placement = dict[TopicPartition, tuple[int, ...]]

_PLAN = (
    Column("topic"),
    number("partition"),
    Column("from", show=joined),
    Column("replicas", "to", joined),
)
_PROGRESS = (
    Column("topic"),
    number("partition"),
    Column("replicas", show=joined),
    Column("adding", show=joined),
    Column("removing", show=joined),
)
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@click.group("reassign", cls=LazyGroup)
def reassign() -> None:
    """Move replicas between brokers: plan, run, progress, throttle, cancel."""


@reassign.command("plan", epilog="Example: kraftrio reassign plan orders --brokers 1,2,3")
@click.argument("topics", metavar="TOPIC...", nargs=-1, type=TOPIC, required=True)
@click.option("--brokers", metavar="ID,ID", help="That may have replicas (default: all).")
@click.option(
    "--replication-factor", type=click.IntRange(min=1), metavar="N", help="Default: as it is."
)
@cluster_command
async def plan(
    session: Session, topics: tuple[str, ...], brokers: str | None, replication_factor: int | None
) -> None:
    """Show what would be moved to spread replicas and leaders evenly."""
    async with session.admin() as admin:
        known = [node.node_id for node in (await admin.describe_cluster()).nodes]
        current = await _current(admin, topics)
    chosen = known if brokers is None else _ids(brokers)
    missing = sorted(set(chosen) - set(known))
    if missing:
        running = joined(sorted(known))
        raise CommandError(f"there is no broker {missing[0]}; those that run are {running}")
    try:
        placed = plan_placement(current, chosen, replication_factor)
    except ValueError as error:
        raise CommandError(str(error)) from None
    rows = [_row(item, current[item], placed[item]) for item in placed]
    moves = [row for row in rows if tuple(row["from"]) != tuple(row["replicas"])]
    session.output.rows(_PLAN, moves)
    if not moves:
        note("nothing has to be moved")
    elif not session.output.as_json:
        note("nothing was changed; with --json it is a plan for 'kraftrio reassign run'")


@reassign.command(
    "run",
    epilog="Example: kraftrio reassign plan orders --json | kraftrio reassign run --wait",
)
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Default: standard input."
)
@click.option(
    "--throttle", type=click.IntRange(min=1), metavar="BYTES", help="Bytes a second, per broker."
)
@click.option("--wait", is_flag=True, help="Until all is moved; then the throttle is removed.")
@cluster_command
async def run(session: Session, path: str | None, throttle: int | None, wait: bool) -> None:
    """Move replicas as a plan says."""
    wanted = read_plan(_plan_text(path))
    async with session.admin() as admin:
        await describe_topics(admin, {item.topic for item in wanted})
        if throttle is not None:
            await _set_throttle(admin, throttle, wanted)
        results = await admin.alter_partition_reassignments(wanted, raise_errors=False)

        def done(item: TopicPartition, nothing: None) -> None:
            row = {"topic": item.topic, "partition": item.partition, "replicas": wanted[item]}
            session.output.done(f"{partition_text(item)} moves to {joined(wanted[item])}", row)

        report(results, done, partition_text)
        if not wait:
            return
        while ongoing := await admin.list_partition_reassignments(wanted):
            note(f"{len(ongoing)} of {len(wanted)} partitions are being moved")
            await trio.sleep(1)
        if throttle is not None:
            await _set_throttle(admin, None, wanted)
    note("all is moved")


@reassign.command("progress", epilog="Example: kraftrio reassign progress")
@cluster_command
async def progress(session: Session) -> None:
    """Show the partitions that are being moved."""
    async with session.admin() as admin:
        found = await admin.list_partition_reassignments()
    rows: list[Row] = [
        {
            "topic": item.topic,
            "partition": item.partition,
            "replicas": each.replicas,
            "adding": each.adding_replicas,
            "removing": each.removing_replicas,
        }
        for item, each in sorted(found.items())
    ]
    session.output.rows(_PROGRESS, rows)
    if not rows:
        note("nothing is being moved")


@reassign.command("cancel", epilog="Example: kraftrio reassign cancel orders")
@click.argument("topics", metavar="TOPIC...", nargs=-1, type=TOPIC, required=True)
@cluster_command
async def cancel(session: Session, topics: tuple[str, ...]) -> None:
    """Stop moving the partitions of topics: their replicas stay where they were."""
    async with session.admin() as admin:
        current = await _current(admin, topics)
        ongoing = await admin.list_partition_reassignments(current)
        if not ongoing:
            raise CommandError(f"no partition of {joined(topics)} is being moved")
        results = await admin.alter_partition_reassignments(
            dict.fromkeys(ongoing), raise_errors=False
        )

    def done(item: TopicPartition, nothing: None) -> None:
        row = {"topic": item.topic, "partition": item.partition, "cancelled": True}
        session.output.done(f"{partition_text(item)} stays where it was", row)

    report(results, done, partition_text)


@reassign.command("throttle", epilog="Example: kraftrio reassign throttle off orders")
@click.argument("rate", metavar="BYTES|off")
@click.argument("topics", metavar="TOPIC...", nargs=-1, type=TOPIC, required=True)
@cluster_command
async def throttle(session: Session, rate: str, topics: tuple[str, ...]) -> None:
    """Limit moving replicas to so many bytes a second, or remove the limit."""
    if rate != "off" and (not rate.isascii() or not rate.isdigit() or rate == "0"):
        raise click.UsageError(f"{rate!r} is neither a number of bytes nor 'off'")
    async with session.admin() as admin:
        current = await _current(admin, topics)
        await _set_throttle(admin, None if rate == "off" else int(rate), current)
    sentence = "is not limited" if rate == "off" else f"is limited to {rate} bytes a second"
    session.output.done(
        f"moving replicas of {joined(topics)} {sentence}",
        {"topics": topics, "rate": None if rate == "off" else int(rate)},
    )


def _plan_text(path: str | None) -> str:
    return sys.stdin.read() if path is None else Path(path).read_text()


def read_plan(text: str) -> Placement:
    """Read a plan: lines of JSON, or Kafka's one object.

    Raises:
        CommandError: the text is not a plan.
    """
    try:
        entries = _entries(text)
        return {
            TopicPartition(str(entry["topic"]), int(entry["partition"])): tuple(
                int(broker) for broker in entry["replicas"]
            )
            for entry in entries
        }
    except (KeyError, TypeError, ValueError) as error:
        raise CommandError(
            f"this is not a plan as 'kraftrio reassign plan --json' prints it: {error!r}"
        ) from None


def _entries(text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ValueError("it is empty")
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in lines]
    return list(whole["partitions"]) if "partitions" in whole else [whole]


def _ids(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--brokers {text!r}: expected ids such as 1,2,3") from None


async def _current(admin: Admin, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    found = await describe_topics(admin, topics)
    return {
        TopicPartition(name, number): partition.replicas
        for name, described in found.items()
        for number, partition in described.partitions.items()
    }


def _row(item: TopicPartition, before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    return {
        "topic": item.topic,
        "partition": item.partition,
        "from": before,
        "replicas": after,
    }


async def _set_throttle(admin: Admin, rate: int | None, items: Iterable[TopicPartition]) -> None:
    """Limit the replication of partitions to bytes a second per broker; None: remove the limit."""

    def operations(names: Sequence[str], value: str) -> list[AlterConfigOp]:
        if rate is None:
            return [AlterConfigOp(name, None, OpType.DELETE) for name in names]
        return [AlterConfigOp(name, value) for name in names]

    changes = {
        ConfigResource(ConfigResourceType.BROKER, str(node.node_id)): operations(_RATES, str(rate))
        for node in (await admin.describe_cluster()).nodes
    }
    changes |= {
        ConfigResource(ConfigResourceType.TOPIC, topic): operations(_REPLICAS, "*")
        for topic in {item.topic for item in items}
    }
    await admin.incremental_alter_configs(changes)
