"""How many partitions clients may create and delete: `controller_mutation_rate` (KIP-599), sans-IO.

Owns: `MutationQuotas`, a bucket for all that share a limit, and `Mutations`, what one request may
change. Rules (Kafka's)
1. A bucket fills at the limit's rate, up to what that is in all windows. What is created or deleted
   is taken out of it, a token for each partition, also more than there is: then it owes.
2. Of a request in a version that knows THROTTLING_QUOTA_EXCEEDED, nothing is done while the bucket
   owes (strict). Older ones are done, and their client has to wait (permissive).
3. How long to wait is how long the bucket needs to owe nothing.
4. A bucket is full when it is not used, so that one which would be full by now is dropped. There
   are at most MOST_BUCKETS; then the one that was used longest ago goes.

Buckets live as long as this node decides about the cluster; the next one begins with full ones.

Called by: controller.py; the decisions on topics take from `DecisionContext.mutations`.
Kafka's counterpart: ControllerMutationQuotaManager.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kraftrio.kraft_meta.metadata.client_limits import ClientLimits
from kraftrio.kraft_meta.metadata.quota_image import CONTROLLER_MUTATION_RATE, QuotaEntity
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

MOST_BUCKETS: Final = 10_000
_EXCEEDED: Final = "The throttling quota has been exceeded."

# From these versions on clients understand that they are refused.
STRICT_SINCE: Final[dict[type[Any], int]] = {
    CreateTopicsRequest: 6,
    CreatePartitionsRequest: 3,
    DeleteTopicsRequest: 5,
}


class RequestSender(NamedTuple):
    """Whom quotas know as the sender of a request, and where it was sent from."""

    user: str
    client_id: str
    host: str = ""


class _Bucket:
    __slots__ = ("filled_ms", "tokens")

    def __init__(self, tokens: float, now_ms: float) -> None:
        self.tokens = tokens
        self.filled_ms = now_ms

    def fill(self, rate: float, most: float, now_ms: float) -> None:
        self.tokens = min(most, self.tokens + rate * (now_ms - self.filled_ms) / 1000.0)
        self.filled_ms = now_ms


class Mutations:
    """What one request may change; without a bucket anything.

    Attributes:
        throttle_ms: how long its client has to wait.
    """

    __slots__ = ("_bucket", "_is_strict", "_rate", "throttle_ms")

    def __init__(self, bucket: _Bucket | None, rate: float, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._is_strict = is_strict
        self.throttle_ms = 0

    def take(self, partition_count: int) -> None:
        """Create or delete so many partitions.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED.
        """
        bucket = self._bucket
        if bucket is None:
            return
        if self._is_strict and bucket.tokens < 0:
            self._owe(bucket)
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _EXCEEDED)
        bucket.tokens -= partition_count
        if not self._is_strict and bucket.tokens < 0:
            self._owe(bucket)

    def _owe(self, bucket: _Bucket) -> None:
        self.throttle_ms = int(-bucket.tokens / self._rate * 1000 + 0.5)


ANY_MUTATIONS: Final = Mutations(None, 0.0, is_strict=False)


class MutationQuotas:
    """See the module.

    Args:
        window_count, window_size_ms: what a bucket holds at most (controller.quota.window.*).
    """

    def __init__(self, window_count: int, window_size_ms: float) -> None:
        self._full_s = window_count * window_size_ms / 1000.0
        self.limits = ClientLimits(CONTROLLER_MUTATION_RATE)
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()  # as they were used

    def begin(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Begin with full buckets, and these quotas."""
        self.limits = ClientLimits(CONTROLLER_MUTATION_RATE)
        self._buckets.clear()
        self.limits.change(quotas)

    def change(self, quotas: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Take over all values of some entities as they are now; None: they have none.

        A client without a limit owes nothing, also once it gets one again.
        """
        self.limits.change(quotas)
        for sharing in list(self._buckets):
            if self.limits.find(*sharing) is None:
                del self._buckets[sharing]

    def of(
        self, request: Any, api_version: int, sender: RequestSender | None, now_ms: float
    ) -> Mutations:
        """Return what a request may change."""
        since = STRICT_SINCE.get(type(request))
        if sender is None or since is None:
            return ANY_MUTATIONS
        found = self.limits.find(sender.user, sender.client_id)
        if found is None:
            return ANY_MUTATIONS
        sharing, most = (found.user, found.client_id), found.value * self._full_s
        bucket = self._buckets.get(sharing)
        if bucket is None:
            self._drop_full(now_ms)
            bucket = self._buckets[sharing] = _Bucket(most, now_ms)
        else:
            self._buckets.move_to_end(sharing)
        bucket.fill(found.value, most, now_ms)
        return Mutations(bucket, found.value, is_strict=api_version >= since)

    @property
    def bucket_count(self) -> int:
        """How many buckets are kept."""
        return len(self._buckets)

    def _drop_full(self, now_ms: float) -> None:
        """Make room for a new bucket (rule 4)."""
        while self._buckets:
            sharing, oldest = next(iter(self._buckets.items()))
            found = self.limits.find(*sharing)
            idle_s = (now_ms - oldest.filled_ms) / 1000.0
            is_needed = found is not None and (
                oldest.tokens + found.value * idle_s < found.value * self._full_s
            )
            if is_needed and len(self._buckets) < MOST_BUCKETS:
                return
            del self._buckets[sharing]
