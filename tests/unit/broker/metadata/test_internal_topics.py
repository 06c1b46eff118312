"""Internal topics of applications: made once, as they want them; failures are kept for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.broker.metadata.auto_topics import AutoTopicCreator
from kraftrio.broker.metadata.internal_topics import InternalTopics
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

RETRY_MS = 10_000


class Time(Clock):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 0.0

    def monotonic_ms(self) -> float:
        return self.ms


@dataclass
class _Current:
    request_timeout_ms: int = 30_000


class _Dynamic:
    current = _Current()


class Controller:
    """Takes requests; the test answers them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[CreateTopicsRequest, Deferred[Any]]] = []

    def submit(self, request: CreateTopicsRequest, api_version: int) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        self.waiting.append((request, deferred))
        return deferred

    def answer(self, code: ErrorCode, message: str | None = None) -> list[CreatableTopic]:
        """Answer the oldest request, all topics alike; the topics."""
        request, deferred = self.waiting.pop(0)
        results = [
            CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
        deferred.complete(CreateTopicsResponse(topics=results))
        return list(request.topics)


class Maker:
    """The topics under test, with a controller and a clock."""

    def __init__(self) -> None:
        self.time, self.controller = Time(), Controller()
        creator = AutoTopicCreator(_Dynamic(), None, self.controller)  # type: ignore[arg-type]
        self.topics = InternalTopics(creator, self.time)

    def create(self, *names: str) -> dict[str, str]:
        """Ask for topics of three partitions."""
        config = CreatableTopicConfig(name="cleanup.policy", value="compact")
        return self.topics.create(
            [
                CreatableTopic(name=name, num_partitions=3, replication_factor=-1, configs=[config])
                for name in names
            ],
            RETRY_MS,
        )


def test_topics_are_made_as_given_and_once() -> None:
    """What is on its way is not asked for again."""
    maker = Maker()
    assert maker.create("a", "b") == {}
    assert maker.create("a", "b", "c") == {}
    made = maker.controller.answer(ErrorCode.NONE)
    assert [(topic.name, topic.num_partitions) for topic in made] == [("a", 3), ("b", 3)]
    assert made[0].configs[0].value == "compact"
    assert [topic.name for topic in maker.controller.answer(ErrorCode.NONE)] == ["c"]
    assert not maker.controller.waiting


def test_failures_are_returned_and_tried_again_later() -> None:
    """In the meantime nobody asks the controller."""
    maker = Maker()
    maker.create("a")
    maker.controller.answer(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    assert maker.create("a", "b") == {"a": "too few brokers"}
    assert [topic.name for topic in maker.controller.answer(ErrorCode.NONE)] == ["b"]
    maker.time.ms += RETRY_MS
    assert maker.create("a") == {}
    maker.controller.answer(ErrorCode.NONE)
    assert maker.create("a") == {}


def test_a_topic_that_exists_is_no_failure() -> None:
    """Another broker was faster, or the metadata is behind."""
    maker = Maker()
    maker.create("a")
    maker.controller.answer(ErrorCode.TOPIC_ALREADY_EXISTS, "exists")
    assert maker.create("a") == {}


def test_an_error_without_a_message_has_its_own() -> None:
    """And what is remembered has a limit."""
    maker = Maker()
    names = [f"t{number}" for number in range(1500)]
    maker.create(*names)
    maker.controller.answer(ErrorCode.POLICY_VIOLATION)
    failures = maker.create(*names)
    assert len(failures) == 1000
    assert set(failures.values()) == {ErrorCode.POLICY_VIOLATION.text}
