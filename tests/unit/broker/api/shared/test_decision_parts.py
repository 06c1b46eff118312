"""Large administrative requests: decided in parts, answered as if at once, bounded."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.shared.decision_parts import MOST_ENTRIES, decide_in_parts
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES
from kraftrio.broker.server.slices.sliced_work import do_at_once
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from tests.support.sliced import finish_counting


class Controller:
    """Decides at once; duplicates within a request are refused, as by the real one."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.times_out = False

    def decide(self, request: Any) -> Deferred[Any]:
        self.asked.append(request)
        if self.times_out:
            return Deferred.completed(error_response(request, ErrorCode.REQUEST_TIMED_OUT))
        if isinstance(request, ElectLeadersRequest):
            return Deferred.completed(_elect(request))
        names = [topic.name for topic in request.topics]
        return Deferred.completed(
            CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(
                        name=name,
                        error_code=ErrorCode.INVALID_REQUEST
                        if names.count(name) > 1
                        else ErrorCode.NONE,
                    )
                    for name in dict.fromkeys(names)
                ]
            )
        )


def _elect(request: ElectLeadersRequest) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[PartitionResult(partition_id=i) for i in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ]
    )


def decided(controller: Controller, request: Any) -> Any:
    answer = do_at_once(decide_in_parts(controller.decide, request)).value
    return answer.value if isinstance(answer, Deferred) else answer


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=n, num_partitions=partitions) for n in names], timeout_ms=1000
    )


def test_a_small_request_is_asked_about_as_it_is() -> None:
    controller = Controller()
    request = create("a", "b")
    decided(controller, request)
    assert controller.asked == [request]
    assert controller.asked[0] is request


def test_a_large_request_is_decided_in_parts() -> None:
    """The answers are those of all topics, each once, in their order."""
    controller = Controller()
    names = [f"t{i}" for i in range(1000)]
    response = decided(controller, create(*names))
    assert [topic.name for topic in response.topics] == names
    assert len(controller.asked) > 1000 // PART_ENTRIES
    assert all(len(part.topics) <= PART_ENTRIES for part in controller.asked)
    assert all(part.timeout_ms == 1000 for part in controller.asked)


def test_a_name_that_comes_twice_is_refused_wherever_it_comes() -> None:
    names = [f"t{i}" for i in range(600)]
    response = decided(Controller(), create(*names, "t3", "t3"))
    refused = [topic.name for topic in response.topics if topic.error_code]
    assert refused == ["t3"]
    assert len(response.topics) == 600


@pytest.mark.parametrize("partitions", [1, 11])
def test_too_much_at_once_is_refused_whole(partitions: int) -> None:
    """POLICY_VIOLATION, and the controller is not asked."""
    controller = Controller()
    count = MOST_ENTRIES + 1 if partitions == 1 else MOST_ENTRIES // 10
    response = decided(controller, create(*map(str, range(count)), partitions=partitions))
    assert {topic.error_code for topic in response.topics} == {ErrorCode.POLICY_VIOLATION}
    assert controller.asked == []


def test_topics_to_delete_by_name_are_bounded_too() -> None:
    controller = Controller()
    names = [str(i) for i in range(MOST_ENTRIES + 1)]
    response = decided(controller, DeleteTopicsRequest(topic_names=names))
    assert [one.name for one in response.responses] == names
    assert controller.asked == []


def test_a_topic_that_is_cut_is_one_topic_in_the_answer() -> None:
    controller = Controller()
    request = ElectLeadersRequest(
        topic_partitions=[
            TopicPartitions(topic="a", partitions=list(range(600))),
            TopicPartitions(topic="b", partitions=[0]),
        ]
    )
    response = decided(controller, request)
    assert len(controller.asked) == 3
    assert [
        (topic.topic, [one.partition_id for one in topic.partition_result])
        for topic in response.replica_election_results
    ] == [("a", list(range(600))), ("b", [0])]


def test_an_entity_of_very_many_parts_is_refused_for_a_few() -> None:
    """The last part of a type counts; as many types are kept as make it no entity."""
    parts = [
        AlterClientQuotasEntityData(entity_type=kind, entity_name=f"{number}")
        for number in range(1000)
        for kind in ("user", "a", "b", "c", "d")
    ]
    request = AlterClientQuotasRequest(entries=[AlterClientQuotasEntryData(entity=parts)])
    decided_on: list[AlterClientQuotasRequest] = []

    def decide(asked: AlterClientQuotasRequest) -> Deferred[Any]:
        decided_on.append(asked)
        return Deferred.completed(AlterClientQuotasResponse())

    _, pauses = finish_counting(decide_in_parts(decide, request))
    assert pauses > len(parts)
    (entry,) = decided_on[0].entries
    kept = [(part.entity_type, part.entity_name) for part in entry.entity]
    assert kept == [("user", "999"), ("a", "999"), ("b", "999"), ("c", "999")]


def test_the_controller_finds_what_entries_hold_in_memory() -> None:
    """It decides without a pause, so thousands of configs are decoded before it is asked."""
    controller = Controller()
    configs = each(lambda i: CreatableTopicConfig(name=f"c{i}", value=""), range(1000))
    assert not isinstance(configs, list)
    request = create("a")
    request.topics[0].configs = configs
    decided(controller, request)
    [topic] = controller.asked[0].topics
    assert isinstance(topic.configs, list)
    assert [config.name for config in topic.configs] == [f"c{i}" for i in range(1000)]


@pytest.mark.parametrize("names", [["a"] * 1000, [f"t{i}" for i in range(1000)]])
def test_no_step_takes_long(names: list[str]) -> None:
    """Work pauses at least once for each entry that it looks at, also at repeated ones."""
    looked_at: list[CreatableTopic] = []

    def look(name: str) -> CreatableTopic:
        looked_at.append(CreatableTopic(name=name, num_partitions=1))
        return looked_at[-1]

    request = create()
    request.topics = each(look, names)
    most, before = 0, 0
    for _ in decide_in_parts(Controller().decide, request):
        most, before = max(most, len(looked_at) - before), len(looked_at)
    assert most <= PART_ENTRIES


def test_when_a_part_runs_out_of_time_the_rest_is_not_asked_about() -> None:
    controller = Controller()
    controller.times_out = True
    response = decided(controller, create(*map(str, range(1000))))
    assert len(controller.asked) == 1
    assert {topic.error_code for topic in response.topics} == {ErrorCode.REQUEST_TIMED_OUT}
    assert len(response.topics) == 1000
