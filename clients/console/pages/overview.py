"""The cluster as a whole: brokers, what is wrong, how much comes in; and its metadata quorum.

Called by: `app`.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from kraftrio.clients.cli.cluster.health import check_partitions
from kraftrio.clients.cli.cluster.standing import broker_rows, quorum_rows
from kraftrio.clients.console.console import Console
from kraftrio.clients.console.history.charts import MAX_POINTS, make_chart
from kraftrio.clients.console.history.sampler import ClusterSample
from kraftrio.clients.console.pages.view import mark_begin, page

_MAX_PROBLEMS = 50


async def overview(console: Console, request: Request) -> Response:
    """Show brokers, what is wrong, and throughput."""
    seen = await console.sampler.latest()
    problems = check_partitions(seen.topics, seen.min_insync_replicas)
    total = console.sampler.total
    return page(
        console,
        "overview.html",
        "Overview",
        area="overview",
        seen=seen,
        brokers=_brokers(seen),
        problems=[problem.row for problem in problems[:_MAX_PROBLEMS]],
        problem_count=len(problems),
        serious_count=len({problem.item for problem in problems if problem.is_serious}),
        partition_count=sum(len(topic.partitions) for topic in seen.topics.values()),
        size_bytes=sum(seen.sizes.values()),
        rate=total.rate(),
        chart=make_chart(total.rates(MAX_POINTS), 640, 96),
    )


async def quorum(console: Console, request: Request) -> Response:
    """Show who leads the metadata quorum, and how far the others are."""
    mark_begin(request)
    found = await console.admin.describe_metadata_quorum()
    rows = quorum_rows(found, console.settings.now_ms())
    return page(console, "quorum.html", "Quorum", area="quorum", quorum=found, rows=rows)


def _brokers(seen: ClusterSample) -> list[dict[str, Any]]:
    rows = []
    for row in broker_rows(seen.cluster, seen.topics):
        directories = seen.directories.get(row["broker"], {}).values()
        rows.append(
            {
                **row,
                "answers": row["broker"] in seen.directories,
                "size_bytes": sum(
                    replica.size_bytes
                    for directory in directories
                    for replica in directory.replicas.values()
                ),
                "usable_bytes": min(
                    (each.usable_bytes for each in directories if each.usable_bytes is not None),
                    default=None,
                ),
                "offline": sum(each.error is not None for each in directories),
            }
        )
    return rows
