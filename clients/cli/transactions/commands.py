"""`kraftrio transaction`: list, describe, producers, fence, abort.

Called by: the root of the command line.
"""

from __future__ import annotations

import click

from kraftrio.base.clock import wall_ms
from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import AbortTransactionSpec, TransactionDescription
from kraftrio.clients.arguments.nearest import did_you_mean
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.clients.cli.names import TOPIC
from kraftrio.clients.cli.output import Column, Row, joined, number
from kraftrio.clients.cli.partitions import partition_text, partitions_of
from kraftrio.clients.cli.session import Session, cluster_command, confirm, report
from kraftrio.clients.cli.times import duration_text, moment_text, parse_duration_ms
from kraftrio.clients.errors import TransactionalIdNotFoundError
from kraftrio.wire.primitives import TopicPartition

_LIST = (Column("transactional_id"), number("producer_id"), Column("state"))
_DESCRIPTION = (
    Column("transactional_id"),
    number("coordinator"),
    Column("state"),
    number("producer_id"),
    number("producer_epoch", "epoch"),
    Column("open_for_ms", "open for", duration_text),
    Column("timeout_ms", "timeout", duration_text),
    Column("partitions", show=joined),
)
_PRODUCERS = (
    Column("topic"),
    number("partition"),
    number("producer_id"),
    number("producer_epoch", "epoch"),
    number("last_sequence"),
    Column("last_timestamp", "last record", moment_text),
    number("open_since_offset", "open since"),
)


@click.group("transaction", cls=LazyGroup)
def transaction() -> None:
    """Transactions and their producers: list, describe, fence, abort."""


@transaction.command("list", epilog="Example: kraftrio transaction list --state Ongoing")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Such as Ongoing.")
@click.option("--longer-than", metavar="DURATION", help="Only those open for longer, such as 10m.")
@cluster_command
async def list_transactions(
    session: Session, states: tuple[str, ...], longer_than: str | None
) -> None:
    """List transactional ids with the states of their transactions."""
    try:
        least_ms = None if longer_than is None else parse_duration_ms(longer_than)
    except ValueError as error:
        raise click.UsageError(f"--longer-than: {error}") from None
    async with session.admin() as admin:
        found = await admin.transactions.list_ids(states=states, min_duration_ms=least_ms)
    rows: list[Row] = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "state": each.state,
        }
        for each in found
    ]
    session.output.rows(_LIST, rows)


@transaction.command("describe", epilog="Example: kraftrio transaction describe shouter-1")
@click.argument("ids", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True)
@cluster_command
async def describe(session: Session, ids: tuple[str, ...]) -> None:
    """Show the producer, the state and the partitions of transactions."""
    async with session.admin() as admin:
        results = await admin.transactions.describe(dict.fromkeys(ids), raise_errors=False)
        for name, error in results.errors.items():
            if isinstance(error, TransactionalIdNotFoundError):
                known = [each.transactional_id for each in await admin.transactions.list_ids()]
                hint = did_you_mean(name, known) or "; kraftrio transaction list shows them"
                raise CommandError(f"there is no transactional id {name!r}{hint}")
    found = results.values_or_raise()
    now_ms = wall_ms()
    session.output.rows(_DESCRIPTION, [_row(name, each, now_ms) for name, each in found.items()])


def _row(name: str, found: TransactionDescription, now_ms: int) -> Row:
    start_ms = found.transaction_start_time_ms
    return {
        "transactional_id": name,
        "coordinator": found.coordinator,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "open_for_ms": None if start_ms is None else max(now_ms - start_ms, 0),
        "timeout_ms": found.transaction_timeout_ms,
        "partitions": sorted(map(partition_text, found.topic_partitions)),
    }


@transaction.command("producers", epilog="Example: kraftrio transaction producers orders")
@click.argument("topic", type=TOPIC)
@click.option("--partition", "chosen", type=int, multiple=True, metavar="N", help="Default: all.")
@click.option("--open", "only_open", is_flag=True, help="Only those with an open transaction.")
@cluster_command
async def producers(session: Session, topic: str, chosen: tuple[int, ...], only_open: bool) -> None:
    """Show the producers that partitions know, and where their transactions began."""
    async with session.admin() as admin:
        items = await partitions_of(admin, topic, chosen)
        found = await admin.transactions.describe_producers(items)
    rows: list[Row] = [
        {
            "topic": item.topic,
            "partition": item.partition,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "last_sequence": each.last_sequence,
            "last_timestamp": each.last_timestamp,
            "open_since_offset": each.current_transaction_start_offset,
        }
        for item, states in sorted(found.items())
        for each in states
        if not only_open or each.current_transaction_start_offset is not None
    ]
    session.output.rows(_PRODUCERS, rows)


@transaction.command("fence", epilog="Example: kraftrio transaction fence shouter-1")
@click.argument("ids", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_command
async def fence(session: Session, ids: tuple[str, ...], yes: bool) -> None:
    """Fence producers, which aborts their open transactions."""
    confirm(f"fence the producers of {', '.join(ids)}?", yes)
    async with session.admin() as admin:
        results = await admin.transactions.fence_producers(dict.fromkeys(ids), raise_errors=False)

    def done(name: str, fenced: object) -> None:
        session.output.done(
            f"the producers of {name} are fenced", {"transactional_id": name, "fenced": True}
        )

    report(results, done, repr)


@transaction.command(
    "abort", epilog="Example: kraftrio transaction abort orders --partition 0 --producer-id 7"
)
@click.argument("topic", type=TOPIC)
@click.option(
    "--partition", type=int, required=True, metavar="N", help="The partition where it hangs."
)
@click.option(
    "--producer-id",
    type=int,
    required=True,
    metavar="N",
    help="The producer whose transaction it is.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_command
async def abort(session: Session, topic: str, partition: int, producer_id: int, yes: bool) -> None:
    """Abort a transaction in one partition that no coordinator will end.

    A transaction that its coordinator still knows is ended by `fence`: aborting a part of it by
    hand could split it.
    """
    async with session.admin() as admin:
        (item,) = await partitions_of(admin, topic, [partition])
        spec = await _open_transaction(admin, item, producer_id)
        confirm(f"abort what producer {producer_id} has open in {partition_text(item)}?", yes)
        await admin.transactions.abort(spec)
    session.output.done(
        f"what producer {producer_id} had open in {partition_text(item)} is aborted",
        {"topic": topic, "partition": partition, "producer_id": producer_id, "aborted": True},
    )


async def _open_transaction(
    admin: Admin, item: TopicPartition, producer_id: int
) -> AbortTransactionSpec:
    for each in (await admin.transactions.describe_producers([item]))[item]:
        if each.producer_id == producer_id and each.current_transaction_start_offset is not None:
            return AbortTransactionSpec(
                item, producer_id, each.producer_epoch, max(each.coordinator_epoch or 0, 0)
            )
    raise CommandError(
        f"producer {producer_id} has nothing open in {partition_text(item)};"
        f" kraftrio transaction producers {item.topic} --open shows who has"
    )
