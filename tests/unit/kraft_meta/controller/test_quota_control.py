"""AlterClientQuotas, as the controller decides on it."""

from __future__ import annotations

import pytest
from immutables import Map

from kraftrio.kraft_meta.metadata.quota_image import quota_entity
from kraftrio.kraft_meta.metadata.security_records import ClientQuotaRecord
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
)
from tests.unit.kraft_meta.controller.context import ControllerContext

Parts = list[tuple[str, str | None]]
Values = list[tuple[str, float | None]]
Entry = tuple[Parts, Values]

USER_A: Parts = [("user", "a")]
RATE, PERCENTAGE = "producer_byte_rate", "request_percentage"
INVALID = ErrorCode.INVALID_REQUEST


def entry(parts: Parts, values: Values) -> AlterClientQuotasEntryData:
    return AlterClientQuotasEntryData(
        entity=[AlterClientQuotasEntityData(entity_type=k, entity_name=n) for k, n in parts],
        ops=[OpData(key=k, value=v or 0.0, remove=v is None) for k, v in values],
    )


def alter(
    context: ControllerContext, *entries: Entry, validate_only: bool = False
) -> list[tuple[ErrorCode, str | None]]:
    response = context.send(
        AlterClientQuotasRequest(
            entries=[entry(*one) for one in entries], validate_only=validate_only
        )
    )
    assert isinstance(response, AlterClientQuotasResponse)
    return [(one.error_code, one.error_message) for one in response.entries]


DONE = (ErrorCode.NONE, None)


@pytest.mark.parametrize(
    "parts",
    [
        USER_A,
        [("user", None)],
        [("client-id", "c")],
        [("client-id", None)],
        [("user", "a"), ("client-id", "c")],
        [("client-id", None), ("user", None)],
        [("user", None), ("client-id", "c")],
    ],
)
def test_values_are_set_changed_and_removed(parts: Parts) -> None:
    context = ControllerContext()
    entity = quota_entity(dict(parts))
    assert alter(context, (parts, [(RATE, 1000.0), (PERCENTAGE, 12.5)])) == [DONE]
    assert context.committed.client_quotas == Map({entity: Map({RATE: 1000.0, PERCENTAGE: 12.5})})
    assert alter(context, (parts, [(RATE, 5.0), (PERCENTAGE, None)])) == [DONE]
    assert context.committed.client_quotas == Map({entity: Map({RATE: 5.0})})
    assert alter(context, (parts, [(RATE, None)])) == [DONE]
    assert context.committed.client_quotas == Map()


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", None])
def test_addresses_have_a_rate_of_connections(name: str | None) -> None:
    context = ControllerContext()
    assert alter(context, ([("ip", name)], [("connection_creation_rate", 7.0)])) == [DONE]
    entity = quota_entity({"ip": name})
    assert context.committed.client_quotas == Map({entity: Map(connection_creation_rate=7.0)})


def test_what_is_so_already_makes_no_record() -> None:
    context = ControllerContext()
    alter(context, (USER_A, [(RATE, 1000.0)]))
    before = len(context.log)
    assert alter(context, (USER_A, [(RATE, 1000.0), (PERCENTAGE, None)])) == [DONE]
    assert alter(context, ([("user", "b")], [(RATE, None)])) == [DONE]
    assert len(context.log) == before


def test_nothing_is_changed_when_only_validated() -> None:
    context = ControllerContext()
    bad: Entry = ([("user", "b")], [(RATE, 0.5)])
    answers = alter(context, (USER_A, [(RATE, 1.0)]), bad, validate_only=True)
    assert answers == [DONE, (INVALID, f"{RATE} cannot be a fractional value.")]
    assert not any(isinstance(record, ClientQuotaRecord) for record in context.log)


@pytest.mark.parametrize(
    ("parts", "values", "message"),
    [
        ([], [(RATE, 1.0)], "Invalid empty client quota entity"),
        ([("group", "g")], [(RATE, 1.0)], "Unhandled client quota entity type: group"),
        ([("user", "")], [(RATE, 1.0)], "Empty user not supported"),
        ([("client-id", "")], [(RATE, 1.0)], "Empty client-id not supported"),
        (
            [("ip", "1.2.3.4"), ("user", "a")],
            [("connection_creation_rate", 1.0)],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId",
        ),
        (
            [("ip", "1.2.3.400")],
            [("connection_creation_rate", 1.0)],
            "1.2.3.400 is not a valid IP or resolvable host.",
        ),
        (USER_A, [("retention.ms", 1.0)], "Invalid configuration key retention.ms"),
        (
            USER_A,
            [("connection_creation_rate", 1.0)],
            "Invalid configuration key connection_creation_rate",
        ),
        ([("ip", None)], [(RATE, 1.0)], f"Invalid configuration key {RATE}"),
        (USER_A, [(RATE, 0.0)], f"Quota {RATE} must be greater than 0"),
        (USER_A, [(RATE, -1.0)], f"Quota {RATE} must be greater than 0"),
        (USER_A, [(RATE, float("nan"))], f"Quota {RATE} must be greater than 0"),
        (USER_A, [(RATE, 1.5)], f"{RATE} cannot be a fractional value."),
        (USER_A, [(RATE, 1e30)], f"Proposed value for {RATE} is too large for a LONG."),
        (
            [("ip", None)],
            [("connection_creation_rate", 2.0**31)],
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            USER_A,
            [(RATE, 1.0), (RATE, 2.0)],
            f"Duplicate quota key {RATE} not updating quota for this entity "
            "ClientQuotaEntity(entries={user=a})",
        ),
    ],
)
def test_what_cannot_be_is_refused_as_a_whole(parts: Parts, values: Values, message: str) -> None:
    """The other entities of the request have their quotas."""
    context = ControllerContext()
    good: Entry = ([("user", "good")], [(RATE, 1.0)])
    bad: Entry = (parts, [(PERCENTAGE, 1.0), *values] if "Duplicate" not in message else values)
    if parts and parts[0][0] == "ip":
        bad = (parts, values)
    assert alter(context, bad, good) == [(INVALID, message), DONE]
    assert list(context.committed.client_quotas) == [quota_entity({"user": "good"})]


def test_an_entity_that_is_named_twice_is_left_as_it_is() -> None:
    context = ControllerContext()
    answers = alter(
        context,
        (USER_A, [(RATE, 1.0)]),
        ([("user", None)], [(RATE, 3.0)]),
        (USER_A, [(RATE, 2.0)]),
    )
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=a})"
    assert answers == [(INVALID, message), DONE]
    assert list(context.committed.client_quotas) == [quota_entity({"user": None})]
