"""All quotas that a broker holds its clients to: `ClientQuotas`.

Bytes produced, bytes consumed, and the share of the event loop's time that requests take, as a
percentage. What clients change in the cluster's metadata is counted by the active controller
(`kraft_meta/controller/mutation_quota`); here it is only known whether anybody has such a limit,
since the controller then has to know who asks.

Sans-IO. Called by: the metadata publisher (`change`), the throttle of the server.
Kafka's counterpart: QuotaFactory's QuotaManagers.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.broker.security.quotas.client_quota import ClientQuota
from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.kraft_meta.metadata.client_limits import ClientLimits
from kraftrio.kraft_meta.metadata.quota_image import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)


class ClientQuotas:
    """See the module.

    Attributes:
        is_on: whether anybody has any limit; false as long as no quota is set.
    """

    def __init__(self, windows: RateWindows) -> None:
        self.producer = ClientQuota(ClientLimits(PRODUCER_BYTE_RATE), windows)
        self.consumer = ClientQuota(ClientLimits(CONSUMER_BYTE_RATE), windows)
        # Kafka, too, lets a client that takes too much time wait for one window at most.
        self.request = ClientQuota(
            ClientLimits(REQUEST_PERCENTAGE), windows, most_wait_ms=windows.size_ms
        )
        self.mutations = ClientLimits(CONTROLLER_MUTATION_RATE)
        self.is_on = False

    def change(self, quotas: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Take over all values of some entities as they are now; None: they have none."""
        limits = [quota.limits for quota in (self.producer, self.consumer, self.request)]
        limits.append(self.mutations)
        for one in limits:
            one.change(quotas)
        self.is_on = any(limits)
