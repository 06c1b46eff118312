"""`kraftrio cluster describe`, `health` and `quorum`.

Called by: the root of the command line.
"""

from __future__ import annotations

import click

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import ConfigResource, ConfigResourceType, QuorumReplica
from kraftrio.clients.cli.cluster.health import check_partitions
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.output import Column, Row, joined, number
from kraftrio.clients.cli.partitions import describe_topics
from kraftrio.clients.cli.session import Session, cluster_command
from kraftrio.clients.cli.times import duration_text
from kraftrio.clients.metadata import TopicMetadata

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
    """Show the brokers, the controller, and what each broker has."""
    async with session.admin() as admin:
        cluster = await admin.describe_cluster()
        topics = await _all_topics(admin)
    partitions = [each for topic in topics.values() for each in topic.partitions.values()]
    rows: list[Row] = [
        {
            "broker": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "leaders": sum(each.leader_id == broker.node_id for each in partitions),
            "replicas": sum(broker.node_id in each.replicas for each in partitions),
        }
        for broker in cluster.nodes
    ]
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
        topics = await _all_topics(admin)
        least = await _min_isr(admin, topics)
    problems = check_partitions(topics, least)
    session.output.rows(_PROBLEMS, [problem.row for problem in problems])
    count = sum(len(topic.partitions) for topic in topics.values())
    serious = len({problem.place for problem in problems if problem.is_serious})
    if serious:
        raise CommandError(f"{serious} of {count} partitions are in trouble")
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
    end = max((each.log_end_offset for each in found.voters), default=0)
    now_ms = session.now_ms()
    rows = [_replica_row(each, "voter", end, now_ms) for each in found.voters]
    rows += [_replica_row(each, "observer", end, now_ms) for each in found.observers]
    for row in rows:
        if row["node"] == found.leader_id:
            row["role"] = "leader"
    if session.output.as_json:
        session.output.rows(_REPLICAS, [{**head, **row} for row in rows])
        return
    session.output.fields(head, _QUORUM)
    session.output.line()
    session.output.rows(_REPLICAS, rows)


def _replica_row(replica: QuorumReplica, role: str, end: int, now_ms: int) -> dict[str, object]:
    caught_up_ms = replica.last_caught_up_timestamp_ms
    is_known = caught_up_ms is not None and caught_up_ms >= 0
    return {
        "node": replica.replica_id,
        "role": role,
        "log_end_offset": replica.log_end_offset,
        "lag": max(end - replica.log_end_offset, 0),
        "behind_ms": max(now_ms - caught_up_ms, 0) if is_known else None,
    }


async def _all_topics(admin: Admin) -> dict[str, TopicMetadata]:
    return await describe_topics(admin, await admin.list_topics(list_internal=True))


async def _min_isr(admin: Admin, topics: dict[str, TopicMetadata]) -> dict[str, int]:
    """Return min.insync.replicas by topic."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    found = await admin.describe_configs(resources) if resources else {}
    return {
        resource.name: int(entries["min.insync.replicas"].value or 1)
        for resource, entries in found.items()
        if "min.insync.replicas" in entries
    }
