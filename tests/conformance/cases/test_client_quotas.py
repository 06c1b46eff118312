"""DescribeClientQuotas and AlterClientQuotas: entities, values, filters, and what is refused."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kraftrio.wire.messages.cluster import MetadataRequest
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    OpData,
)
from kraftrio.wire.messages.data import FetchPartition, FetchResponse
from tests.conformance.cases.calls import (
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    SETTLE_DEADLINE_S,
    append,
    batch_of,
    end_offset,
    fetch_request,
    produce_request,
    records_in,
)
from tests.conformance.cases.raw_client import RawClient

Parts = list[tuple[str, str | None]]
Values = list[tuple[str, float | None]]
Entity = frozenset[tuple[str, str | None]]
Alter = Callable[..., list[tuple[ErrorCode, str | None]]]

INVALID = ErrorCode.INVALID_REQUEST
RATE, CONSUMED, PERCENTAGE = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def quotas(
    *components: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=k, match_type=t, match=m) for k, t, m in components],
        strict=strict,
    )


def found(
    client: RawClient, request_: DescribeClientQuotasRequest, version: int = 1
) -> dict[Entity, dict[str, float]]:
    response = client.call(request_, version)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            one.key: one.value for one in entry.values
        }
        for entry in response.entries
    }


def wait_found(client: RawClient, expected: dict[Entity, dict[str, float]]) -> None:
    """Wait until the broker's metadata has these quotas and no others."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while (seen := found(client, quotas())) != expected:
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)


def alteration(
    *entries: tuple[Parts, Values], validate_only: bool = False
) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasEntryData(
                entity=[
                    AlterClientQuotasEntityData(entity_type=kind, entity_name=name)
                    for kind, name in parts
                ],
                ops=[OpData(key=k, value=v or 0.0, remove=v is None) for k, v in values],
            )
            for parts, values in entries
        ],
        validate_only=validate_only,
    )


@pytest.fixture
def alter(client: RawClient) -> Iterator[Alter]:
    """Change quotas; those that are left are removed after the test."""

    def send(
        *entries: tuple[Parts, Values], validate_only: bool = False, version: int = 1
    ) -> list[tuple[ErrorCode, str | None]]:
        request_ = alteration(*entries, validate_only=validate_only)
        response = client.call(request_, version)
        by_entity = {
            frozenset((part.entity_type, part.entity_name) for part in one.entity): one
            for one in response.entries
        }
        assert len(by_entity) == len(response.entries)
        return [
            (by_entity[frozenset(parts)].error_code, by_entity[frozenset(parts)].error_message)
            for parts, _ in entries
        ]

    wait_found(client, {})
    yield send
    left: list[tuple[Parts, Values]] = [
        (list(entity), [(key, None) for key in values])
        for entity, values in found(client, quotas()).items()
    ]
    if left:
        send(*left)
    wait_found(client, {})


OK = (ErrorCode.NONE, None)
PAIR: Parts = [("user", "a"), ("client-id", "b")]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_changed_and_removed(alter: Alter, client: RawClient, version: int) -> None:
    values: Values = [(RATE, 1e9), (CONSUMED, 2e9), (PERCENTAGE, 12.5), (MUTATIONS, 1000.5)]
    assert alter((PAIR, values), version=version) == [OK]
    wait_found(client, {frozenset(PAIR): {k: v for k, v in values if v is not None}})
    assert alter((PAIR, [(RATE, 3e9), (CONSUMED, None), (MUTATIONS, None)])) == [OK]
    wait_found(client, {frozenset(PAIR): {RATE: 3e9, PERCENTAGE: 12.5}})
    assert alter((PAIR, [(RATE, None), (PERCENTAGE, None), (CONSUMED, None)])) == [OK]
    wait_found(client, {})


ENTITIES: list[tuple[Parts, str]] = [
    (PAIR, RATE),
    ([("user", "a"), ("client-id", None)], RATE),
    ([("user", "a")], RATE),
    ([("user", None), ("client-id", "b")], RATE),
    ([("user", None), ("client-id", None)], RATE),
    ([("user", None)], RATE),
    ([("client-id", "b")], RATE),
    ([("client-id", None)], RATE),
    ([("ip", "10.1.2.3")], CONNECTIONS),
    ([("ip", None)], CONNECTIONS),
]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((), False, range(10)),
        ((), True, []),
        ((("user", SPECIFIED, None),), False, range(6)),
        ((("user", SPECIFIED, None),), True, [2, 5]),
        ((("user", EXACT, "a"),), False, [0, 1, 2]),
        ((("user", EXACT, "a"),), True, [2]),
        ((("user", DEFAULT, None),), False, [3, 4, 5]),
        ((("user", DEFAULT, None), ("client-id", EXACT, "b")), True, [3]),
        ((("user", EXACT, "a"), ("client-id", SPECIFIED, None)), False, [0, 1]),
        ((("client-id", DEFAULT, None),), True, [7]),
        ((("client-id", SPECIFIED, None),), False, [0, 1, 3, 4, 6, 7]),
        ((("client-id", EXACT, ""),), False, []),
        ((("user", EXACT, "nobody"),), False, []),
        ((("ip", SPECIFIED, None),), True, [8, 9]),
        ((("ip", EXACT, "10.1.2.3"),), False, [8]),
        ((("ip", EXACT, "not an address"),), False, []),
        ((("ip", DEFAULT, None),), False, [9]),
    ],
)
def test_filters_find_what_agrees_with_all_their_parts(
    alter: Alter,
    client: RawClient,
    components: tuple[tuple[str, int, str | None], ...],
    strict: bool,
    expected: list[int],
) -> None:
    """Other parts of an entity do not matter, unless the filter is strict."""
    large = 1e9
    assert alter(*((parts, [(key, large)]) for parts, key in ENTITIES)) == [OK] * len(ENTITIES)
    wait_found(client, {frozenset(parts): {key: large} for parts, key in ENTITIES})
    assert found(client, quotas(*components, strict=strict)) == {
        frozenset(ENTITIES[i][0]): {ENTITIES[i][1]: large} for i in expected
    }


def test_nothing_is_changed_when_only_validated(alter: Alter, client: RawClient) -> None:
    good: tuple[Parts, Values] = (PAIR, [(RATE, 1e9)])
    bad: tuple[Parts, Values] = ([("user", "c")], [(RATE, 0.0)])
    refused = (INVALID, f"Quota {RATE} must be greater than 0")
    assert alter(good, bad, validate_only=True) == [OK, refused]
    other: tuple[Parts, Values] = ([("user", "d")], [(RATE, 1e9)])
    assert alter(other) == [OK]
    wait_found(client, {frozenset([("user", "d")]): {RATE: 1e9}})


@pytest.mark.parametrize(
    ("parts", "values", "message"),
    [
        ([], [(RATE, 1.0)], "Invalid empty client quota entity"),
        ([("group", "g")], [(RATE, 1.0)], "Unhandled client quota entity type: group"),
        ([("user", "")], [(RATE, 1.0)], "Empty user not supported"),
        (
            [("ip", "1.2.3.4"), ("user", "a")],
            [(CONNECTIONS, 1.0)],
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId",
        ),
        (
            [("ip", "1.2.3.400")],
            [(CONNECTIONS, 1.0)],
            "1.2.3.400 is not a valid IP or resolvable host.",
        ),
        ([("user", "a")], [("retention.ms", 1.0)], "Invalid configuration key retention.ms"),
        ([("user", "a")], [(CONNECTIONS, 1.0)], f"Invalid configuration key {CONNECTIONS}"),
        ([("ip", None)], [(RATE, 1.0)], f"Invalid configuration key {RATE}"),
        ([("ip", None)], [(CONNECTIONS, 0.0)], f"Quota {CONNECTIONS} must be greater than 0"),
        ([("user", "a")], [(RATE, 0.0)], f"Quota {RATE} must be greater than 0"),
        ([("user", "a")], [(PERCENTAGE, -1.0)], f"Quota {PERCENTAGE} must be greater than 0"),
        ([("user", "a")], [(RATE, 1.5)], f"{RATE} cannot be a fractional value."),
        ([("user", "a")], [(RATE, 1e30)], f"Proposed value for {RATE} is too large for a LONG."),
        (
            [("ip", None)],
            [(CONNECTIONS, 2.0**31)],
            f"Proposed value for {CONNECTIONS} is too large for an INT.",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    alter: Alter, client: RawClient, parts: Parts, values: Values, message: str
) -> None:
    """Nothing of that entity is changed; the request's other entities are."""
    good: tuple[Parts, Values] = ([("user", "good")], [(RATE, 1e9)])
    assert alter((parts, values), good) == [(INVALID, message), OK]
    wait_found(client, {frozenset([("user", "good")]): {RATE: 1e9}})


@pytest.mark.parametrize("twice", ["key", "entity"])
def test_what_is_named_twice_is_refused(alter: Alter, client: RawClient, twice: str) -> None:
    user: Parts = [("user", "a")]
    if twice == "key":
        answers = alter((user, [(RATE, 1e9), (RATE, 2e9)]))
    else:
        response = client.call(alteration((user, [(RATE, 1e9)]), (user, [(RATE, 2e9)])))
        answers = [(one.error_code, one.error_message) for one in response.entries]
    assert [code for code, _ in answers] == [INVALID]


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (quotas(("", 7, None)), INVALID, "Invalid empty entity type."),
        (
            quotas(("x", 7, None), ("x", 7, None)),
            ErrorCode.UNSUPPORTED_VERSION,
            "Unsupported entity type x",
        ),
        (
            quotas(("user", 2, None), ("user", 7, None)),
            INVALID,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            quotas(("user", 0, None)),
            INVALID,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            quotas(("user", 1, "a")),
            INVALID,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            quotas(("user", 2, "a")),
            INVALID,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        (quotas(("user", 7, None)), INVALID, "Unknown match type 7"),
        (
            quotas(("user", 2, None), ("ip", 2, None)),
            INVALID,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        ),
    ],
)
def test_filters_of_quotas_that_make_no_sense(
    client: RawClient, request_: DescribeClientQuotasRequest, code: ErrorCode, message: str
) -> None:
    response = client.call(request_, 1)
    assert (response.error_code, response.error_message, response.entries) == (code, message, None)


def topics_created(
    client: RawClient, *topics: tuple[str, int], version: int = 7
) -> tuple[list[ErrorCode], int]:
    """Create topics of so many partitions; return the codes, and how long to wait."""
    request_ = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in topics
        ],
        timeout_ms=10_000,
    )
    response = client.call(request_, version)
    by_name = {topic.name: topic.error_code for topic in response.topics}
    return [by_name[name] for name, _ in topics], response.throttle_time_ms


def topics_deleted(client: RawClient, *names: str, version: int = 5) -> tuple[list[ErrorCode], int]:
    request_ = DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)
    response = client.call(request_, version)
    by_name = {topic.name: topic.error_code for topic in response.responses}
    return [by_name[name] for name in names], response.throttle_time_ms


def test_changes_are_counted_by_the_controller(
    alter: Alter,
    client: RawClient,
    connect: Callable[[], RawClient],
    unique_name: Callable[[str], str],
) -> None:
    """Eleven seconds' worth at once and what begins with it; then each topic is refused."""
    name, exceeded = unique_name("t"), ErrorCode.THROTTLING_QUOTA_EXCEEDED
    user: Parts = [("user", "ANONYMOUS")]
    assert alter((user, [(MUTATIONS, 1.0)])) == [OK]
    wait_found(client, {frozenset(user): {MUTATIONS: 1.0}})
    first, second, old = connect(), connect(), connect()
    codes, wait_ms = topics_created(first, (name, 14), (f"{name}-refused", 1))
    assert codes == [ErrorCode.NONE, exceeded]
    assert 2000 <= wait_ms <= 3000
    codes, again_ms = topics_deleted(second, name)
    assert (codes, 1000 <= again_ms <= wait_ms) == ([exceeded], True)
    codes, old_ms = topics_deleted(old, name, version=4)
    assert codes == [ErrorCode.NONE]
    assert 14_000 <= old_ms <= 17_000


def test_a_muted_connection_is_answered_later(
    alter: Alter,
    client: RawClient,
    connect: Callable[[], RawClient],
    unique_name: Callable[[str], str],
) -> None:
    """The response comes at once and says how long; what is sent then waits for so long."""
    user: Parts = [("user", "ANONYMOUS")]
    name = unique_name("t")
    assert alter((user, [(MUTATIONS, 5.0)])) == [OK]
    wait_found(client, {frozenset(user): {MUTATIONS: 5.0}})
    muted, other = connect(), connect()
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while topics_created(connect(), (name, 75))[0] != [ErrorCode.NONE]:  # owed by another test
        assert time.monotonic() < deadline
        time.sleep(0.2)
    began = time.monotonic()
    codes, wait_ms = topics_created(muted, (f"{name}-refused", 1))
    assert codes == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert time.monotonic() - began < 0.5
    muted.call(MetadataRequest(topics=[]), 12)
    assert time.monotonic() - began >= wait_ms / 1000
    began = time.monotonic()
    other.call(MetadataRequest(topics=[]), 12)
    assert time.monotonic() - began < 0.5


def test_an_address_that_comes_too_fast_is_turned_away(
    alter: Alter, client: RawClient, bootstrap: str
) -> None:
    """Ten seconds' worth comes in at once; others do not notice."""
    flooder: Parts = [("ip", "127.0.0.2")]
    assert alter((flooder, [(CONNECTIONS, 2.0)])) == [OK]
    wait_found(client, {frozenset(flooder): {CONNECTIONS: 2.0}})
    host, _, port = bootstrap.rpartition(":")
    with contextlib.ExitStack() as opened:
        flood = [
            opened.enter_context(
                socket.create_connection((host, int(port)), 10, source_address=("127.0.0.2", 0))
            )
            for _ in range(60)
        ]
        for sock in flood:
            with contextlib.suppress(OSError):  # it may be closed already
                sock.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        client.call(MetadataRequest(topics=[]), 12)
        answered = sum(map(is_answered, flood))
    assert 20 <= answered <= 24


def is_answered(sock: socket.socket) -> bool:
    """Whether a request on a connection was answered before it was closed."""
    try:
        return bool(sock.recv(1))
    except ConnectionError:
        return False


def test_a_consumer_with_a_small_quota_gets_its_batches(
    alter: Alter, client: RawClient, connect: Callable[[], RawClient], new_topic: Callable[..., str]
) -> None:
    """A batch as large as all windows allow comes whole, at the second attempt at the latest; the
    next one has to wait, and is not begun.
    """
    topic = new_topic()
    for _ in range(2):
        append(client, topic, os.urandom(195_000))
    user: Parts = [("user", "ANONYMOUS")]
    assert alter((user, [(CONSUMED, 20_000.0)])) == [OK]
    wait_found(client, {frozenset(user): {CONSUMED: 20_000.0}})
    consumer = connect()
    response = fetched(consumer, topic, 0)
    if not response.responses:  # part of the next one would have come with it
        assert response.throttle_time_ms < 100
        response = fetched(consumer, topic, 0)
    (records,) = [part.records for one in response.responses for part in one.partitions]
    assert len(records_in(records)) == 1
    assert response.throttle_time_ms == 0
    response = fetched(connect(), topic, 1)
    assert (response.error_code, list(response.responses)) == (ErrorCode.NONE, [])
    assert 9_000 < response.throttle_time_ms < 11_000


def fetched(client: RawClient, topic: str, offset: int) -> FetchResponse:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    response = client.call(fetch_request(topic, asked), FETCH_BY_NAME)
    assert isinstance(response, FetchResponse)
    return response


def test_a_producer_above_its_quota_is_told_to_wait(
    alter: Alter, client: RawClient, connect: Callable[[], RawClient], new_topic: Callable[..., str]
) -> None:
    """What it has sent is taken nevertheless."""
    topic = new_topic()
    user: Parts = [("user", "ANONYMOUS")]
    assert alter((user, [(RATE, 20_000.0)])) == [OK]
    wait_found(client, {frozenset(user): {RATE: 20_000.0}})
    request_ = produce_request(topic, batch_of(os.urandom(300_000)))
    response = connect().call(request_, PRODUCE_BY_NAME)
    assert response.responses[0].partition_responses[0].error_code is ErrorCode.NONE
    assert 4_900 < response.throttle_time_ms < 5_100
    assert end_offset(client, topic) == 1
