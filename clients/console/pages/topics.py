"""Topics with throughput and sizes, and one topic with its partitions and settings.

Called by: `app`.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from kraftrio.clients.admin.types import ConfigResource, ConfigResourceType, OffsetSpec
from kraftrio.clients.console.console import Console
from kraftrio.clients.console.history.charts import MAX_POINTS, SPARK_POINTS, make_chart
from kraftrio.clients.console.history.sampler import ClusterSample
from kraftrio.clients.console.history.series import Series
from kraftrio.clients.console.pages.configs import setting_rows
from kraftrio.clients.console.pages.view import mark_begin, page, piece_of
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.wire.primitives import TopicPartition


async def topics(console: Console, request: Request) -> Response:
    """List the topics whose names contain what was asked for."""
    seen = await console.sampler.latest()
    part = request.query_params.get("find", "").strip()
    shows_internal = request.query_params.get("internal") == "1"
    chosen = [
        topic
        for name, topic in sorted(seen.topics.items())
        if part.lower() in name.lower() and (shows_internal or not topic.is_internal)
    ]
    piece = piece_of(chosen, request)
    return page(
        console,
        "topics.html",
        "Topics",
        area="topics",
        seen=seen,
        part=part,
        shows_internal=shows_internal,
        piece=piece,
        rows=[_row(console, seen, topic) for topic in piece.items],
    )


def _row(console: Console, seen: ClusterSample, topic: TopicMetadata) -> dict[str, Any]:
    partitions = topic.partitions.values()
    series = console.sampler.records.get(topic.name, Series())
    sizes = console.sampler.sizes.get(topic.name, Series())
    return {
        "name": topic.name,
        "partitions": len(partitions),
        "replicas": max((len(each.replicas) for each in partitions), default=0),
        "troubled": sum(
            each.leader_id < 0 or len(each.isr) < len(each.replicas) for each in partitions
        ),
        "records": seen.record_count(topic),
        "size_bytes": seen.size_bytes(topic),
        "rate": series.rate(),
        "byte_rate": sizes.rate(),
        "chart": make_chart(series.rates(SPARK_POINTS), 96, 20),
    }


async def topic(console: Console, request: Request) -> Response:
    """Show a topic."""
    mark_begin(request)
    name = request.query_params.get("name", "")
    found = await console.topic(name)
    items = [TopicPartition(name, number) for number in sorted(found.partitions)]
    admin = console.admin
    led = [item for item in items if found.partitions[item.partition].leader_id >= 0]
    starts = await admin.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST), raise_errors=False)
    ends = await admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST), raise_errors=False)
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    settings = (await admin.describe_configs([resource], include_documentation=True))[resource]
    seen = await console.sampler.latest()
    rows = []
    for item in items:
        partition = found.partitions[item.partition]
        is_known = item in starts and item in ends
        is_known = is_known and item not in starts.errors and item not in ends.errors
        rows.append(
            {
                "partition": partition,
                "start": starts[item].offset if is_known else None,
                "end": ends[item].offset if is_known else None,
                "size_bytes": seen.sizes.get(item),
            }
        )
    series = console.sampler.records.get(name, Series())
    shows_all = request.query_params.get("all") == "1"
    return page(
        console,
        "topic.html",
        name,
        area="topics",
        topic=found,
        rows=rows,
        settings=setting_rows(settings, shows_all=shows_all),
        shows_all=shows_all,
        rate=series.rate(),
        byte_rate=console.sampler.sizes.get(name, Series()).rate(),
        chart=make_chart(series.rates(MAX_POINTS), 640, 96),
    )
