"""All quotas of a broker, as the metadata change them."""

from __future__ import annotations

import pytest
from immutables import Map

from kraftrio.broker.security.quotas.client_quotas import ClientQuotas
from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.kraft_meta.metadata.quota_image import quota_entity

USER = quota_entity({"user": "a"})


@pytest.mark.parametrize(
    "key",
    ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"],
)
def test_any_limit_of_a_client_turns_them_on(key: str) -> None:
    quotas = ClientQuotas(RateWindows())
    quotas.change({quota_entity({"ip": None}): Map(connection_creation_rate=1.0)})
    assert not quotas.is_on
    quotas.change({USER: Map({key: 100.0})})
    assert quotas.is_on
    quotas.change({USER: None})
    assert not quotas.is_on


def test_each_key_is_a_quota_of_its_own() -> None:
    quotas = ClientQuotas(RateWindows(11, 1000))
    quotas.change({USER: Map(producer_byte_rate=100.0, request_percentage=1.0)})
    assert quotas.producer.use("a", "x", 2000, 0) == 10_000
    assert quotas.consumer.use("a", "x", 2000, 0) == 0
    assert quotas.request.use("a", "x", 2000, 0) == 1000  # a window at most
    assert not quotas.mutations
