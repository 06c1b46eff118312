"""The metrics that clients have pushed, as far as they fit (KIP-714).

Owns: `ClientMetrics`: the clients that asked what to push, and the newest values of each. Rules
1. A client that was not asked lately, asks or pushes too often, or pushes for another subscription
   than it has, is refused with the error that KIP-714 names.
2. What is kept has bounds: so many clients, the least recent go first; so many series in all, and
   of one client; labels and names of a bounded length.
3. What a client pushed is shown until it has missed `_MISSED` pushes, also if it has ended.
4. Counters come as what was added since the last push, and are added up here.

Sans-IO: time comes in as `now_ms`. Called by `api/telemetry`; shown by `endpoint`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraftrio.broker.metrics.telemetry.otlp import PushedPoint, read_metrics
from kraftrio.broker.metrics.telemetry.subscriptions import (
    ClientIdentity,
    TelemetrySubscription,
    subscription_for,
)
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.records.compression import Compression, decompress

PREFIX: Final = "kafka_client_"
_KAFKA = "org.apache.kafka."
_MISSED = 3
_MAX_CLIENTS = 1000
_MAX_SERIES_OF_CLIENT = 500
_MAX_LABELS = 8
_MAX_TEXT = 200
_EARLY = 0.9  # of an interval: clients' clocks run as they do
_NOT_WORD = re.compile(r"[^a-zA-Z0-9_]+")


@dataclass(slots=True)
class _Client:
    """A client that asked.

    Attributes:
        series: its newest values, by name and labels.
    """

    identity: ClientIdentity
    subscription: TelemetrySubscription
    asked_ms: float
    pushed_ms: float | None = None
    may_ask_again: bool = False
    has_ended: bool = False
    series: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, bool]] = field(
        default_factory=dict
    )


class PushedFamily(NamedTuple):
    """A metric of clients, with the value of each."""

    name: str
    is_counter: bool
    series: list[tuple[Mapping[str, str], float]]


class ClientMetrics:
    """See the module.

    Args:
        resources: the settings of all `client-metrics` resources, as they are now.
        max_series: of all clients.
    """

    def __init__(
        self, resources: Callable[[], Iterable[Mapping[str, str]]], max_series: int
    ) -> None:
        self._resources = resources
        self._max_series = max_series
        self._clients: dict[bytes, _Client] = {}  # the least recent first
        self._series_count = 0

    def subscribe(
        self, instance_id: bytes, identity: ClientIdentity, now_ms: float
    ) -> TelemetrySubscription:
        """Say what a client is to push.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED: it asks too often.
        """
        subscription = subscription_for(identity, self._resources())
        known = self._clients.pop(instance_id, None)
        if known is None:
            known = _Client(identity, subscription, now_ms)
        else:
            last_ms = max(known.asked_ms, known.pushed_ms or 0)
            if not known.may_ask_again and _is_early(known, subscription, last_ms, now_ms):
                self._clients[instance_id] = known
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            known.subscription, known.asked_ms, known.may_ask_again = subscription, now_ms, False
        self._clients[instance_id] = known
        self._forget(now_ms)
        return subscription

    def push(
        self,
        instance_id: bytes,
        subscription_id: int,
        compression: int,
        data: bytes,
        now_ms: float,
        *,
        max_bytes: int,
        terminating: bool,
    ) -> None:
        """Take what a client pushes.

        Raises:
            KafkaError: refused (rule 1), or INVALID_RECORD: it cannot be read.
        """
        client = self._clients.get(instance_id)
        if instance_id == ZERO_UUID or (client is not None and client.has_ended):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if client is None:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        wanted = subscription_for(client.identity, self._resources())
        pushed_ms = client.pushed_ms
        if (
            pushed_ms is not None
            and pushed_ms > client.asked_ms  # one may follow each answer at once
            and not terminating
            and _is_early(client, wanted, pushed_ms, now_ms)
        ):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.pushed_ms = now_ms  # also if it is refused: the next one is to wait
        _check(client, wanted, subscription_id, compression)
        if len(data) > max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        client.has_ended = terminating
        try:
            if compression:
                data = decompress(Compression(compression), data, max_bytes)
            for point in read_metrics(data):
                self._keep(client, point)
        except RemoteProtocolError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.MESSAGE_TOO_LARGE:
                code = ErrorCode.TELEMETRY_TOO_LARGE
            raise KafkaError(code, error.message) from error

    def _keep(self, client: _Client, point: PushedPoint) -> None:
        """Note a value, if there is room."""
        labels = tuple(
            (_word(name), value[:_MAX_TEXT]) for name, value in point.labels[:_MAX_LABELS]
        )
        key = (_family(point), labels)
        before = client.series.get(key)
        if before is None:
            if (
                len(client.series) >= _MAX_SERIES_OF_CLIENT
                or self._series_count >= self._max_series
            ):
                return
            self._series_count += 1
        value = point.value
        if before is not None and point.is_delta:
            value += before[0]
        client.series[key] = (value, point.is_counter)

    def _forget(self, now_ms: float) -> None:
        """Rules 2 and 3."""
        late = [
            instance_id
            for instance_id, client in self._clients.items()
            if now_ms - (client.pushed_ms or client.asked_ms)
            > _MISSED * client.subscription.interval_ms
        ]
        too_many = max(len(self._clients) - len(late) - _MAX_CLIENTS, 0)
        gone = dict.fromkeys(late)
        for instance_id in self._clients:
            if too_many <= 0:
                break
            if instance_id not in gone:
                gone[instance_id] = None
                too_many -= 1
        for instance_id in gone:
            self._series_count -= len(self._clients.pop(instance_id).series)

    def families(self, now_ms: float) -> Iterator[PushedFamily]:
        """What is there, by metric."""
        self._forget(now_ms)
        found: dict[str, PushedFamily] = {}
        for client in self._clients.values():
            identity = {
                "client_id": client.identity.client_id[:_MAX_TEXT],
                "client_instance_id": client.identity.client_instance_id,
            }
            for (name, labels), (value, is_counter) in client.series.items():
                family = found.setdefault(name, PushedFamily(name, is_counter, []))
                if family.is_counter == is_counter:
                    family.series.append(({**dict(labels), **identity}, value))
        return iter(found.values())


def _is_early(
    client: _Client, wanted: TelemetrySubscription, last_ms: float, now_ms: float
) -> bool:
    """Whether a client comes again too soon; where its subscription has changed it is to know."""
    is_same = wanted.subscription_id == client.subscription.subscription_id
    return is_same and now_ms - last_ms < wanted.interval_ms * _EARLY


def _check(
    client: _Client, wanted: TelemetrySubscription, subscription_id: int, compression: int
) -> None:
    """Refuse what was pushed for another subscription or cannot be read, and let it ask again."""
    code = ErrorCode.NONE
    if subscription_id != wanted.subscription_id:
        code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    elif not 0 <= compression <= max(Compression):
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if code is not ErrorCode.NONE:
        client.may_ask_again = True
        raise KafkaError(code)


def _word(text: str) -> str:
    """A text as the name of a label."""
    word = _NOT_WORD.sub("_", text[:_MAX_TEXT]).strip("_")
    return f"_{word}" if not word or word[0].isdigit() else word


def _family(point: PushedPoint) -> str:
    """The name of a metric, by Prometheus' rules."""
    name = PREFIX + _word(point.name.removeprefix(_KAFKA))
    if point.is_counter:
        name = name.removesuffix("_total") + "_total"
    return name
