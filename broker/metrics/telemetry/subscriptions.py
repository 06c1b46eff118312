"""Which metrics a client is asked for, by the `client-metrics` resources of the cluster (KIP-714).

Owns: `subscription_for`. Rules
1. A resource is for a client that all of its `match` patterns fit; without patterns, for all.
2. Of several the client is asked for all their metrics, at the shortest of their intervals; `*` is
   for all there are.
3. The id of a subscription changes with what is asked, so that a push shows what it is for.

Pure. Called by `client_metrics`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000


class ClientIdentity(NamedTuple):
    """Who a client is, by the names that patterns use."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class TelemetrySubscription(NamedTuple):
    """What a client is asked for."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def subscription_for(
    client: ClientIdentity, resources: Iterable[Mapping[str, str]]
) -> TelemetrySubscription:
    """Put together what the resources ask of a client."""
    metrics: set[str] = set()
    intervals: list[int] = []
    for configs in resources:
        if not _matches(client, _listed(configs.get("match", ""))):
            continue
        metrics.update(_listed(configs.get("metrics", "")))
        intervals.append(int(configs.get("interval.ms", DEFAULT_INTERVAL_MS)))
    chosen = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    interval_ms = min(intervals, default=DEFAULT_INTERVAL_MS)
    text = f"{client.client_instance_id} {interval_ms} {','.join(chosen)}"
    number = zlib.crc32(text.encode())
    return TelemetrySubscription(number - (1 << 32 if number >> 31 else 0), chosen, interval_ms)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _matches(client: ClientIdentity, patterns: list[str]) -> bool:
    known = client._asdict()
    for pattern in patterns:
        selector, _, expression = pattern.partition("=")
        value = known.get(selector.strip(), "")
        if re.fullmatch(expression.strip(), value) is None:
            return False
    return True
