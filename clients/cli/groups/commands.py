"""`kraftrio group`: list, describe, reset, delete.

Called by: the root of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import trio

from kraftrio.base.clock import wall_ms
from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.groups import reset as resets
from kraftrio.clients.cli.groups.known_offsets import known_offsets
from kraftrio.clients.cli.groups.lag import (
    SHARE,
    GroupView,
    committed_offsets,
    find_groups,
    view_group,
)
from kraftrio.clients.cli.interrupts import until_interrupted
from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.clients.cli.names import GROUP, TOPIC
from kraftrio.clients.cli.output import Column, Output, Row, note, number
from kraftrio.clients.cli.partitions import describe_topics, partitions_of
from kraftrio.clients.cli.session import Session, cluster_command, confirm, report
from kraftrio.clients.cli.times import parse_duration_ms, parse_moment_ms
from kraftrio.clients.errors import GroupNotEmptyError, UnknownMemberIdError
from kraftrio.wire.primitives import TopicPartition

_LIST = (Column("group"), Column("type"), Column("state"), Column("protocol_type", "protocol"))
_SUMMARY = (
    Column("group"),
    Column("type"),
    Column("state"),
    Column("assignor"),
    number("coordinator"),
    number("members"),
    number("lag"),
)
_LAG = (
    Column("topic"),
    number("partition"),
    number("current_offset", "offset"),
    number("log_end_offset", "end"),
    number("lag"),
    Column("member_id", "member"),
    Column("client_id", "client"),
    Column("host"),
)
_PLAN = (
    Column("topic"),
    number("partition"),
    number("current_offset", "from"),
    number("new_offset", "to"),
    number("lag", "lag then"),
)


@click.group("group", cls=LazyGroup)
def group() -> None:
    """Groups of consumers: list, describe with lag, reset, delete."""


@group.command("list", epilog="Example: kraftrio group list --state Empty")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Such as Stable or Empty.")
@click.option(
    "--type",
    "types",
    type=click.Choice(("classic", "consumer", "share", "streams")),
    multiple=True,
    help="Groups of this kind.",
)
@cluster_command
async def list_groups(session: Session, states: tuple[str, ...], types: tuple[str, ...]) -> None:
    """List the groups of every kind."""
    async with session.admin() as admin:
        found = await admin.list_groups(states=states, types=types)
    rows: list[Row] = [
        {
            "group": each.group_id,
            "type": each.type.lower() or None,
            "state": each.state or None,
            "protocol_type": each.protocol_type or None,
        }
        for each in found
    ]
    session.output.rows(_LIST, rows)


@group.command("describe", epilog="Example: kraftrio group describe readers --json")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, type=GROUP, required=True)
@click.option(
    "--watch",
    metavar="DURATION",
    is_flag=False,
    flag_value="2s",
    help="Repeat it, every 2 s by default.",
)
@cluster_command
async def describe(session: Session, group_ids: tuple[str, ...], watch: str | None) -> None:
    """Show the lag of each partition, and which member reads it."""
    every_s = None if watch is None else _option(parse_duration_ms, "--watch", watch) / 1000
    async with session.admin() as admin, until_interrupted():
        while True:
            listings = await find_groups(admin, group_ids)
            views = [await view_group(admin, listing) for listing in listings.values()]
            if every_s is not None:
                session.output.clear()
            _show(session.output, views)
            if every_s is None:
                return
            session.output.flush()
            await trio.sleep(every_s)


def _show(output: Output, views: Sequence[GroupView]) -> None:
    if output.as_json:
        output.rows(_LAG, [row for view in views for row in view.rows])
        return
    output.rows(_SUMMARY, [view.summary for view in views])
    for view in views:
        if view.rows:
            output.line()
            output.rows(_LAG, view.rows)


@group.command(
    "reset",
    epilog="Examples: kraftrio group reset readers --all-topics --to-earliest ;"
    " kraftrio group reset readers --topic orders --to-moment '1h ago' --execute",
)
@click.argument("group_id", metavar="GROUP", type=GROUP)
@click.option(
    "--topic",
    "topics",
    type=TOPIC,
    metavar="TOPIC[:N,N]",
    multiple=True,
    help="Which partitions; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="All topics that the group has read.")
@click.option("--to-earliest", is_flag=True, help="To the first records.")
@click.option("--to-latest", is_flag=True, help="To the end: only new records.")
@click.option(
    "--to-current", is_flag=True, help="To the committed offsets, or the end where there are none."
)
@click.option("--to-offset", type=int, metavar="N", help="To one offset.")
@click.option("--shift-by", type=int, metavar="N", help="N records forward, or back with -N.")
@click.option("--to-moment", metavar="MOMENT", help="To a time such as 2026-11-29T04:00 or 'now'.")
@click.option("--by-duration", metavar="DURATION", help="To that long ago, such as 1h30m.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False),
    help="To the offsets of a file with lines of topic,partition,offset.",
)
@click.option("--execute", is_flag=True, help="Do it; without this option nothing is changed.")
@cluster_command
async def reset(
    session: Session,
    group_id: str,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    **forms: Any,
) -> None:
    """Move a group that has no members to other offsets; without --execute only show them."""
    form, at_ms, table = _read_form(forms)
    if table is not None and (topics or all_topics):
        raise click.UsageError("the file says which partitions: --from-file takes no topics")
    async with session.admin() as admin:
        groups = {each.group_id: each for each in await admin.list_groups()}
        listing = groups.get(group_id)
        if listing is None and all_topics:
            await find_groups(admin, [group_id])
        kind = "" if listing is None else listing.type.lower()
        current = {} if listing is None else await committed_offsets(admin, group_id, kind)
        items = await _chosen(admin, topics, all_topics, table, current)
        plan = resets.plan_reset(form, await known_offsets(admin, items, current, at_ms))
        _show_plan(session.output, group_id, plan, executed=execute)
        if not plan.moves:
            raise CommandError(f"group {group_id!r} has nothing that this would move")
        if not execute:
            note("nothing was changed; add --execute to do it")
            return
        try:
            if kind == SHARE:
                await admin.share_groups.alter_offsets(group_id, plan.offsets)
            else:
                await admin.alter_group_offsets(group_id, plan.offsets)
        except (UnknownMemberIdError, GroupNotEmptyError):
            raise CommandError(
                f"group {group_id!r} has members, so nothing was changed: stop them first"
                f" (kraftrio group describe {group_id} shows who they are)"
            ) from None
    note(f"group {group_id} continues at these offsets")


class _FormGiven(NamedTuple):
    """How to reset, and what is needed for it.

    Attributes:
        at_ms: the moment whose offsets are wanted.
        table: the offset of each partition that is to be reset.
    """

    form: resets.Form
    at_ms: int | None = None
    table: dict[TopicPartition, int] | None = None


def _read_form(forms: Mapping[str, Any]) -> _FormGiven:
    given = [name for name, value in forms.items() if value not in (None, False)]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in forms)
        raise click.UsageError(f"give one of {names}")
    (name,) = given
    value = forms[name]
    now_ms = wall_ms()
    match name:
        case "to_offset":
            return _FormGiven(resets.to_offset(value))
        case "shift_by":
            return _FormGiven(resets.shift_by(value))
        case "from_file":
            table = _read_table(value)
            return _FormGiven(resets.from_table(table), table=table)
        case "to_moment":
            at_ms = _option(lambda text: parse_moment_ms(text, now_ms), "--to-moment", value)
            return _FormGiven(resets.to_moment, at_ms)
        case "by_duration":
            duration_ms = _option(parse_duration_ms, "--by-duration", value)
            return _FormGiven(resets.to_moment, now_ms - duration_ms)
    form = {
        "to_earliest": resets.to_earliest,
        "to_latest": resets.to_latest,
        "to_current": resets.to_current,
    }[name]
    return _FormGiven(form)


def _option(parse: Any, name: str, text: str) -> int:
    try:
        return int(parse(text))
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


def _read_table(path: str) -> dict[TopicPartition, int]:
    try:
        table = resets.read_table(Path(path).read_text().splitlines())
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    if not table:
        raise CommandError(f"{path}: it has no line of topic,partition,offset")
    return table


async def _chosen(
    admin: Admin,
    topics: Sequence[str],
    all_topics: bool,
    table: Mapping[TopicPartition, int] | None,
    current: Mapping[TopicPartition, int | None],
) -> list[TopicPartition]:
    """Return the partitions to be reset."""
    if table is not None:
        await describe_topics(admin, [item.topic for item in table])
        return sorted(table)
    if all_topics == bool(topics):
        raise click.UsageError("give --topic TOPIC, or --all-topics")
    if all_topics:
        return sorted(current)
    items: list[TopicPartition] = []
    for text in topics:
        name, _, numbers = text.partition(":")
        try:
            chosen = [int(each) for each in numbers.split(",")] if numbers else []
        except ValueError:
            raise click.UsageError(f"--topic {text!r}: expected TOPIC or TOPIC:0,1") from None
        items += await partitions_of(admin, name, chosen)
    return items


def _show_plan(output: Output, group_id: str, plan: resets.Plan, *, executed: bool) -> None:
    rows: list[Row] = [
        {
            "group": group_id,
            "topic": move.item.topic,
            "partition": move.item.partition,
            "current_offset": move.known.current,
            "new_offset": move.offset,
            "lag": move.lag,
            "executed": executed,
        }
        for move in plan.moves
    ]
    output.rows(_PLAN, rows)


@group.command("delete", epilog="Example: kraftrio group delete readers")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, type=GROUP, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_command
async def delete(session: Session, group_ids: tuple[str, ...], yes: bool) -> None:
    """Delete groups that have no members, with their committed offsets."""
    async with session.admin() as admin:
        found = await find_groups(admin, group_ids)
        confirm(f"delete {', '.join(found)} with all offsets?", yes)
        results = await admin.delete_groups(found, raise_errors=False)

    def done(group_id: str, nothing: None) -> None:
        session.output.done(f"group {group_id} deleted", {"group": group_id, "deleted": True})

    report(results, done, lambda group_id: f"group {group_id!r}")
