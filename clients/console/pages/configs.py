"""Settings of brokers, with where each value comes from.

Called by: `app`, and the page of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kraftrio.clients.admin.types import (
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
)
from kraftrio.clients.console.console import Console, PageError
from kraftrio.clients.console.pages.view import mark_begin, page

_SOURCES: Final = {
    ConfigSource.UNKNOWN: "unknown",
    ConfigSource.TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "this broker, changed while it runs",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, changed while they run",
    ConfigSource.STATIC_BROKER_CONFIG: "the broker's properties",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG: "the broker's loggers",
    ConfigSource.CLIENT_METRICS_CONFIG: "client metrics",
    ConfigSource.GROUP_CONFIG: "this group",
}


def setting_rows(entries: Mapping[str, ConfigEntry], *, shows_all: bool) -> list[dict[str, Any]]:
    """Return settings by name; without those that are not set, unless all are wanted."""
    return [
        {
            "name": name,
            "value": entry.value,
            "is_hidden": entry.is_sensitive,
            "source": _SOURCES[entry.source],
            "is_default": entry.is_default,
            "documentation": entry.documentation or "",
        }
        for name, entry in sorted(entries.items())
        if shows_all or not entry.is_default
    ]


async def settings(console: Console, request: Request) -> Response:
    """Show the settings of a broker."""
    mark_begin(request)
    cluster = await console.admin.describe_cluster()
    ids = [broker.node_id for broker in cluster.nodes]
    text = request.query_params.get("broker") or str(min(ids, default=0))
    if not text.isdecimal() or int(text[:10]) not in ids:
        shown = ", ".join(map(str, ids))
        raise PageError(404, f"there is no broker {text!r} now; those that run are {shown}")
    resource = ConfigResource(ConfigResourceType.BROKER, text)
    found = await console.admin.describe_configs([resource], include_documentation=True)
    shows_all = request.query_params.get("all") == "1"
    part = request.query_params.get("find", "").strip().lower()
    rows = [
        row
        for row in setting_rows(found[resource], shows_all=shows_all or bool(part))
        if part in row["name"].lower() or part in str(row["value"] or "").lower()
    ]
    return page(
        console,
        "settings.html",
        f"Settings of broker {text}",
        area="settings",
        is_live=False,
        ids=ids,
        broker_id=int(text),
        rows=rows,
        total=len(found[resource]),
        shows_all=shows_all,
        part=part,
    )
