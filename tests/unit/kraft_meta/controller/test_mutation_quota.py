"""How many partitions clients may create and delete, as the controller counts them."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.kraft_meta.controller import mutation_quota
from kraftrio.kraft_meta.controller.mutation_quota import MutationQuotas, RequestSender
from kraftrio.kraft_meta.metadata.quota_image import quota_entity
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
)
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    OpData,
)
from tests.unit.kraft_meta.controller.context import ControllerContext

KEY = "controller_mutation_rate"
ALICE = RequestSender("alice", "app")
OK, EXCEEDED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED


def context(rate: float = 1.0) -> ControllerContext:
    """A controller with a quota for alice: eleven seconds' worth at once."""
    made = ControllerContext()
    made.start_brokers(1)
    alter(made, rate)
    return made


def alter(controller: ControllerContext, rate: float | None) -> None:
    entity = [AlterClientQuotasEntityData(entity_type="user", entity_name="alice")]
    change = AlterClientQuotasEntryData(
        entity=entity, ops=[OpData(key=KEY, value=rate or 0.0, remove=rate is None)]
    )
    controller.send(AlterClientQuotasRequest(entries=[change]))


def create(*topics: tuple[str, int], validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in topics
        ],
        validate_only=validate_only,
    )


def grow(name: str, count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)]
    )


def delete(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])


def codes(response: Any) -> list[ErrorCode]:
    results = next(
        found
        for found in (getattr(response, name, None) for name in ("topics", "results", "responses"))
        if found is not None
    )
    return [result.error_code for result in results]


def test_what_goes_beyond_the_quota_is_done_and_the_next_is_refused() -> None:
    """Topic by topic; the client learns when the bucket owes nothing any more."""
    controller = context()
    response = controller.send(create(("a", 10), ("b", 6), ("c", 1)), sender=ALICE)
    assert codes(response) == [OK, OK, EXCEEDED]
    assert response.topics[2].error_message == "The throttling quota has been exceeded."
    assert response.throttle_time_ms == 5000
    controller.now_ms += 4000
    assert controller.send(create(("c", 1)), sender=ALICE).throttle_time_ms == 1000
    controller.now_ms += 1000
    response = controller.send(create(("c", 1)), sender=ALICE)
    assert (codes(response), response.throttle_time_ms) == ([OK], 0)
    assert set(controller.committed.topics_by_name) == {"a", "b", "c"}


def test_partitions_and_deletions_count_as_well() -> None:
    controller = context()
    controller.send(create(("a", 4), ("b", 1)), sender=ALICE)
    assert codes(controller.send(grow("a", 12), sender=ALICE)) == [OK]
    response = controller.send(grow("a", 13), sender=ALICE)
    assert (codes(response), response.throttle_time_ms) == ([EXCEEDED], 2000)
    controller.now_ms += 2000
    assert codes(controller.send(delete("a", "b"), sender=ALICE)) == [OK, EXCEEDED]
    assert set(controller.committed.topics_by_name) == {"b"}


@pytest.mark.parametrize(
    ("request_", "version"),
    [(create(("c", 1)), 5), (delete("a"), 4), (grow("a", 21), 2)],
)
def test_clients_that_do_not_know_the_refusal_only_wait(request_: Any, version: int) -> None:
    controller = context()
    controller.send(create(("a", 20)), sender=ALICE)
    response = controller.send(request_, version, ALICE)
    assert codes(response) == [OK]
    assert response.throttle_time_ms == (29_000 if version == 4 else 10_000)


def test_what_fails_is_not_counted_and_what_is_validated_is() -> None:
    controller = context()
    controller.send(create(("a", 11)), sender=ALICE)
    for _ in range(5):
        assert codes(controller.send(create(("a", 11)), sender=ALICE)) == [
            ErrorCode.TOPIC_ALREADY_EXISTS
        ]
        assert codes(controller.send(delete("b"), sender=ALICE)) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
    assert codes(controller.send(create(("b", 1), validate_only=True), sender=ALICE)) == [OK]
    assert codes(controller.send(create(("b", 1)), sender=ALICE)) == [EXCEEDED]


def test_others_are_not_counted() -> None:
    controller = context()
    controller.send(create(("a", 100)), sender=ALICE)
    for number, sender in enumerate([None, RequestSender("bob", "app")]):
        response = controller.send(create((f"b{number}", 50)), sender=sender)
        assert (codes(response), response.throttle_time_ms) == ([OK], 0)
    assert controller.send(ElectLeadersRequest(), sender=ALICE).throttle_time_ms == 0


def test_another_limit_holds_at_once_and_a_new_controller_begins_afresh() -> None:
    controller = context()
    controller.send(create(("a", 21)), sender=ALICE)  # owes ten
    alter(controller, 10.0)
    assert controller.send(create(("b", 1)), sender=ALICE).throttle_time_ms == 1000
    controller.controller.deactivate()
    controller.controller.activate(controller.committed, controller.now_ms)
    assert codes(controller.send(create(("b", 111)), sender=ALICE)) == [OK]
    assert codes(controller.send(create(("c", 1)), sender=ALICE)) == [EXCEEDED]


def test_who_has_no_limit_any_more_owes_nothing() -> None:
    controller = context()
    controller.send(create(("a", 100)), sender=ALICE)
    alter(controller, None)
    alter(controller, 1.0)
    assert codes(controller.send(create(("b", 1)), sender=ALICE)) == [OK]


def test_buckets_that_are_full_again_go(monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = MutationQuotas(11, 1000)
    quotas.change({quota_entity({"user": None, "client-id": None}): {KEY: 1.0}})

    def take(client_id: str, count: int, now_ms: float) -> None:
        quotas.of(create(), 7, RequestSender("a", client_id), now_ms).take(count)

    for number in range(50):
        take(str(number), 5, 0)
    take("later", 5, 4000)
    assert quotas.bucket_count == 51
    take("last", 5, 5000)
    assert quotas.bucket_count == 2
    monkeypatch.setattr(mutation_quota, "MOST_BUCKETS", 10)
    for number in range(50):
        take(str(number), 50, 6000)
        with pytest.raises(KafkaError):
            take(str(number), 1, 6000)
    assert quotas.bucket_count == 10
