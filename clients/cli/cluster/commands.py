"""`kraftrio cluster describe`, `health`, `quorum` and `unregister`.

Called by: the root of the command line.
"""

from __future__ import annotations

import click

from kraftrio.base.clock import wall_ms
from kraftrio.clients.cli.cluster.health import check_partitions
from kraftrio.clients.cli.cluster.standing import (
    all_topics,
    broker_rows,
    min_insync_replicas,
    quorum_rows,
)
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.output import Column, joined, number
from kraftrio.clients.cli.session import Session, cluster_command, confirm
from kraftrio.clients.cli.times import duration_text
from kraftrio.clients.errors import BrokerIdNotRegisteredError

_CLUSTER = (Column("cluster_id", "cluster"), Column("controller"), number("brokers"))
_BROKERS = (
    number("broker"),
    Column("host"),
    number("port"),
    Column("rack"),
    number("leaders"),
    number("replicas"),
)
_PROBLEMS = (
    Column("problem"),
    Column("topic"),
    number("partition"),
    number("leader"),
    Column("replicas", show=joined),
    Column("isr", show=joined),
    number("min_isr"),
)
_QUORUM = (number("leader"), number("leader_epoch"), number("high_watermark"))
_REPLICAS = (
    number("node"),
    Column("role"),
    number("log_end_offset"),
    number("lag"),
    Column("behind_ms", "behind", show=duration_text),
)


@click.command("describe", epilog="Example: kraftrio cluster describe")
@cluster_command
async def describe(session: Session) -> None:
    """Show the brokers, the controller, and how many partitions each broker has."""
    async with session.admin() as admin:
        cluster = await admin.describe_cluster()
        topics = await all_topics(admin)
    rows = broker_rows(cluster, topics)
    head = {"cluster_id": cluster.cluster_id, "controller": cluster.controller_id}
    if session.output.as_json:
        session.output.rows(_BROKERS, [{**head, **row} for row in rows])
        return
    session.output.fields({**head, "brokers": len(rows)}, _CLUSTER)
    session.output.line()
    session.output.rows(_BROKERS, rows)


@click.command("health", epilog="Example: kraftrio cluster health || echo look at it")
@cluster_command
async def health(session: Session) -> None:
    """Find partitions without leader, under-replicated, at or under min ISR, or led elsewhere.

    The exit status is 1 if a partition has no leader, lacks replicas or is under its min ISR.
    """
    async with session.admin() as admin:
        topics = await all_topics(admin)
        min_isrs = await min_insync_replicas(admin, topics)
    problems = check_partitions(topics, min_isrs)
    session.output.rows(_PROBLEMS, [problem.row for problem in problems])
    count = sum(len(topic.partitions) for topic in topics.values())
    serious = len({problem.item for problem in problems if problem.is_serious})
    if serious:
        raise CommandError(f"{serious} of {count} partitions have problems")
    if not session.output.as_json:
        session.output.line(f"{count} partitions of {len(topics)} topics are served and replicated")


@click.command("quorum", epilog="Example: kraftrio cluster quorum --json")
@cluster_command
async def quorum(session: Session) -> None:
    """Show who leads the metadata quorum, and how far the other controllers and brokers are."""
    async with session.admin() as admin:
        found = await admin.describe_metadata_quorum()
    head = {
        "leader": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
    }
    rows = quorum_rows(found, wall_ms())
    if session.output.as_json:
        session.output.rows(_REPLICAS, [{**head, **row} for row in rows])
        return
    session.output.fields(head, _QUORUM)
    session.output.line()
    session.output.rows(_REPLICAS, rows)


@click.command("unregister", epilog="Example: kraftrio cluster unregister 3")
@click.argument("broker_id", metavar="BROKER", type=click.IntRange(min=0))
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_command
async def unregister(session: Session, broker_id: int, yes: bool) -> None:
    """Have the cluster forget a broker that is gone for good.

    The broker must be stopped: one that runs would register again. Replicas that are assigned to
    it stay assigned until 'kraftrio reassign' moves them.
    """
    async with session.admin() as admin:
        running = sorted(node.node_id for node in (await admin.describe_cluster()).nodes)
        if broker_id in running:
            raise CommandError(f"broker {broker_id} is running: stop it first")
        confirm(f"unregister broker {broker_id}?", yes)
        try:
            await admin.unregister_broker(broker_id)
        except BrokerIdNotRegisteredError:
            raise CommandError(
                f"there is no broker {broker_id}; those that run are {joined(running)}"
            ) from None
    session.output.done(
        f"broker {broker_id} is no longer registered", {"broker": broker_id, "unregistered": True}
    )
