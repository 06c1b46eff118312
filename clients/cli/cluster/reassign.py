"""`kraftrio reassign`: plan, run, progress, throttle, cancel.

A plan is lines of JSON as `plan --json` prints them, or the file that Kafka's own tool takes.

Called by: the root of the command line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
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
from kraftrio.clients.cli.output import Column, Row, joined, number, tell
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
    """Show what would be moved so that replicas and leaders are shared out evenly."""
    async with session.admin() as admin:
        known = [node.node_id for node in (await admin.describe_cluster()).nodes]
        current = await _current(admin, topics)
    chosen = known if brokers is None else _ids(brokers)
    missing = sorted(set(chosen) - set(known))
    if missing:
        raise CommandError(f"there is no broker {missing[0]}, but {joined(sorted(known))}")
    try:
        placed = plan_placement(current, chosen, replication_factor)
    except ValueError as error:
        raise CommandError(str(error)) from None
    rows = [_row(item, current[item], placed[item]) for item in placed]
    moves = [row for row in rows if tuple(row["from"]) != tuple(row["replicas"])]
    session.output.rows(_PLAN, moves)
    if not moves:
        tell("nothing has to be moved")
    elif not session.output.as_json:
        tell("nothing was changed; with --json it is a plan for 'kraftrio reassign run'")


@reassign.command(
    "run",
    epilog="Example: kraftrio reassign plan orders --json | kraftrio reassign run --wait",
)
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Default: what comes in."
)
@click.option(
    "--throttle", type=click.IntRange(min=1), metavar="BYTES", help="Bytes a second, per broker."
)
@click.option("--wait", is_flag=True, help="Until all is moved; takes the throttle off then.")
@cluster_command
async def run(session: Session, path: str | None, throttle: int | None, wait: bool) -> None:
    """Move replicas as a plan says."""
    wanted = read_plan(_plan_text(path))
    async with session.admin() as admin:
        await describe_topics(admin, {item.topic for item in wanted})
        if throttle is not None:
            await _throttle(admin, throttle, wanted)
        results = await admin.alter_partition_reassignments(wanted, raise_errors=False)

        def done(item: TopicPartition, nothing: None) -> None:
            row = {"topic": item.topic, "partition": item.partition, "replicas": wanted[item]}
            session.output.done(f"{partition_text(item)} moves to {joined(wanted[item])}", row)

        report(results, done, partition_text)
        if not wait:
            return
        while going_on := await admin.list_partition_reassignments(wanted):
            tell(f"{len(going_on)} of {len(wanted)} partitions are on their way")
            await trio.sleep(1)
        if throttle is not None:
            await _unthrottle(admin, wanted)
    tell("all is moved")


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
        tell("nothing is being moved")


@reassign.command("cancel", epilog="Example: kraftrio reassign cancel orders")
@click.argument("topics", metavar="TOPIC...", nargs=-1, type=TOPIC, required=True)
@cluster_command
async def cancel(session: Session, topics: tuple[str, ...]) -> None:
    """Stop moving the partitions of topics: their replicas stay where they were."""
    async with session.admin() as admin:
        current = await _current(admin, topics)
        going_on = await admin.list_partition_reassignments(current)
        if not going_on:
            raise CommandError(f"no partition of {joined(topics)} is being moved")
        results = await admin.alter_partition_reassignments(
            dict.fromkeys(going_on), raise_errors=False
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
    """Hold moving replicas to so many bytes a second, or take that off again."""
    if rate != "off" and (not rate.isascii() or not rate.isdigit() or rate == "0"):
        raise click.UsageError(f"{rate!r} is neither a number of bytes nor 'off'")
    async with session.admin() as admin:
        current = await _current(admin, topics)
        if rate == "off":
            await _unthrottle(admin, current)
        else:
            await _throttle(admin, int(rate), current)
    sentence = "is not held back" if rate == "off" else f"is held to {rate} bytes a second"
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
        raise ValueError("nothing came in")
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


async def _throttle(admin: Admin, rate: int, items: Mapping[TopicPartition, Sequence[int]]) -> None:
    brokers = [node.node_id for node in (await admin.describe_cluster()).nodes]
    changes = {
        ConfigResource(ConfigResourceType.BROKER, str(broker)): [
            AlterConfigOp(name, str(rate)) for name in _RATES
        ]
        for broker in brokers
    }
    changes |= {
        ConfigResource(ConfigResourceType.TOPIC, topic): [
            AlterConfigOp(name, "*") for name in _REPLICAS
        ]
        for topic in {item.topic for item in items}
    }
    await admin.incremental_alter_configs(changes)


async def _unthrottle(admin: Admin, items: Iterable[TopicPartition]) -> None:
    brokers = [node.node_id for node in (await admin.describe_cluster()).nodes]
    changes = {
        ConfigResource(ConfigResourceType.BROKER, str(broker)): [
            AlterConfigOp(name, None, OpType.DELETE) for name in _RATES
        ]
        for broker in brokers
    }
    changes |= {
        ConfigResource(ConfigResourceType.TOPIC, topic): [
            AlterConfigOp(name, None, OpType.DELETE) for name in _REPLICAS
        ]
        for topic in {item.topic for item in items}
    }
    await admin.incremental_alter_configs(changes)
