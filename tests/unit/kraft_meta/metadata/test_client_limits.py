"""Which limit of a client quota applies, in Kafka's order, and who shares it."""

from __future__ import annotations

import pytest
from immutables import Map

from kraftrio.kraft_meta.metadata.client_limits import ClientLimits, Limit
from kraftrio.kraft_meta.metadata.quota_image import QuotaEntity, quota_entity

# All levels, the first that applies first; and who shares what is found there.
LEVELS: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({"user": "u", "client-id": "c"}, ("u", "c")),
    ({"user": "u", "client-id": None}, ("u", "c")),
    ({"user": "u"}, ("u", "")),
    ({"user": None, "client-id": "c"}, ("u", "c")),
    ({"user": None, "client-id": None}, ("u", "c")),
    ({"user": None}, ("u", "")),
    ({"client-id": "c"}, ("", "c")),
    ({"client-id": None}, ("", "c")),
]


def limits(levels: list[int]) -> ClientLimits:
    quotas = {quota_entity(dict(LEVELS[i][0])): Map(k=float(i), other=99.0) for i in levels}
    quotas[quota_entity({"ip": None})] = Map(other=5.0)
    return made("k", quotas)


def made(key: str, quotas: dict[QuotaEntity, Map[str, float]]) -> ClientLimits:
    found = ClientLimits(key)
    found.change(quotas)
    return found


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_first_level_that_is_set_applies(first: int) -> None:
    found = limits(list(range(first, len(LEVELS)))).find("u", "c")
    assert found == Limit(*LEVELS[first][1], float(first))


@pytest.mark.parametrize(
    ("levels", "user", "client_id", "expected"),
    [
        ([0, 2], "u", "other", Limit("u", "", 2.0)),
        ([0, 3], "other", "c", Limit("other", "c", 3.0)),
        ([0, 1, 6], "other", "x", None),
        ([4], "v", "w", Limit("v", "w", 4.0)),
        ([7], "v", "w", Limit("", "w", 7.0)),
        ([1, 4, 5, 7], "u", "", Limit("u", "", 5.0)),
        ([1, 4, 7], "u", "", None),
        ([], "u", "c", None),
    ],
)
def test_what_applies_to_others(
    levels: list[int], user: str, client_id: str, expected: Limit | None
) -> None:
    """A client that names no client id has only what users have."""
    assert limits(levels).find(user, client_id) == expected


def test_another_key_is_another_quota() -> None:
    assert not made("j", {quota_entity({"user": "u"}): Map(k=1.0)})
    assert made("k", {quota_entity({"user": "u"}): Map(k=1.0)})
    assert not made("k", {quota_entity({"ip": None}): Map(k=1.0)})


def test_limits_change_with_the_metadata() -> None:
    found = limits([2, 5])
    user = quota_entity({"user": "u"})
    found.change({user: Map(k=7.0)})
    assert found.find("u", "c") == Limit("u", "", 7.0)
    found.change({user: Map(other=7.0)})
    assert found.find("u", "c") == Limit("u", "", 5.0)
    found.change({quota_entity({"user": None}): None})
    assert not found
