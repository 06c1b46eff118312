"""Topics that the broker creates by itself: those a client just asked for, and the internal ones.

Owns `AutoTopicCreator`, the only place that creates topics without a CreateTopics request. Rules:
1. One creation at a time for a name: hundreds of clients may ask for the same topic at once.
2. The answer to a client does not wait: it is UNKNOWN_TOPIC_OR_PARTITION until the image has the
   topic, as in Kafka, and clients ask again.
3. Internal topics get as many replicas as their setting says, as in Kafka: the controller refuses
   while fewer brokers have registered, and coordinators are not available until then. Where every
   broker is a controller, too, and the factor is not set, it is the number of such nodes, at most
   three, so that a single node works without settings.
4. Other topics get the controller's numbers of partitions and replicas unless this broker sets
   its own.
5. Topics of a Kafka Streams application are made as it wants them (`internal_topics`).
Called by `api/metadata`, the coordinators (FindCoordinator) and `internal_topics`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from kraftrio.base.logging_setup import log_event
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.ports import ClientsController, MetadataPort
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftrio.wire.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

_CREATE_TOPICS_VERSION = 7
_CONTROLLERS_DEFAULT = -1
_log = logging.getLogger("kraftrio.broker.topics")

_WhenDone: TypeAlias = Callable[[ErrorCode, str], None]


class AutoTopicCreator:
    """Creates missing topics through the controller."""

    def __init__(
        self, dynamic: DynamicConfig, metadata: MetadataPort, controller: ClientsController
    ) -> None:
        self._dynamic = dynamic
        self._metadata = metadata
        self._controller = controller
        self._in_flight: dict[str, list[_WhenDone]] = {}

    @property
    def enabled(self) -> bool:
        """Whether a client's request for an unknown topic creates it."""
        return self._dynamic.current.auto_create_topics_enable

    def create(
        self,
        names: Iterable[str],
        when_done: Callable[[str, ErrorCode], None] | None = None,
        sender: RequestSender | None = None,
    ) -> None:
        """Begin to create topics that do not exist; those already on their way are left alone.

        Args:
            names: legal topic names.
            when_done: called once for each name with the controller's verdict; NONE also when
                the topic exists by then.
            sender: the client that wants them, where they count for its quota of changes.
        """
        wanted = []
        for name in names:
            if name not in self._in_flight:
                self._in_flight[name] = []
                wanted.append(name)
            if when_done is not None:
                self._in_flight[name].append(_without_message(partial(when_done, name)))
        self._create([self._topic(name) for name in wanted], sender)

    def create_as_given(
        self, topics: Iterable[CreatableTopic], when_done: Callable[[str, ErrorCode, str], None]
    ) -> None:
        """Begin to create topics that an application needs, with its own settings.

        Those already on their way are left alone, without a callback.

        Args:
            when_done: called once for each other topic with the controller's verdict and message.
        """
        wanted = [topic for topic in topics if topic.name not in self._in_flight]
        for topic in wanted:
            self._in_flight[topic.name] = [partial(when_done, topic.name)]
        self._create(wanted)

    def _create(self, topics: list[CreatableTopic], sender: RequestSender | None = None) -> None:
        if not topics:
            return
        names = [topic.name for topic in topics]
        request = CreateTopicsRequest(
            topics=topics, timeout_ms=self._dynamic.current.request_timeout_ms
        )
        version = _CREATE_TOPICS_VERSION
        if sender is None:
            answer = self._controller.submit(request, api_version=version)
        else:
            answer = self._controller.submit_for(sender, request, api_version=version)
        answer.then(lambda response: self._on_created(names, response))

    def _on_created(self, names: list[str], response: CreateTopicsResponse) -> None:
        results = {one.name: one for one in response.topics}
        for name in names:
            result = results.get(name)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if result is None else result.error_code
            if code is ErrorCode.TOPIC_ALREADY_EXISTS:
                code = ErrorCode.NONE
            message = (None if result is None else result.error_message) or code.text
            if code is not ErrorCode.NONE:
                log_event(
                    _log,
                    logging.WARNING,
                    "topic not created",
                    topic=name,
                    error=code.name,
                    reason=message,
                )
            for callback in self._in_flight.pop(name):
                callback(code, message)

    def _topic(self, name: str) -> CreatableTopic:
        config = self._dynamic.current
        if name == CONSUMER_OFFSETS:
            return self._internal(
                name,
                config.offsets_topic_num_partitions,
                self._replication_factor("offsets.topic.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        if name == TRANSACTION_STATE:
            factor = self._replication_factor("transaction.state.log.replication.factor")
            return self._internal(
                name,
                config.transaction_state_log_num_partitions,
                factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": self._min_isr("transaction.state.log.min.isr", factor),
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        if name == SHARE_GROUP_STATE:
            factor = self._replication_factor("share.coordinator.state.topic.replication.factor")
            return self._internal(
                name,
                config.share_coordinator_state_topic_num_partitions,
                factor,
                {
                    "cleanup.policy": "delete",  # the coordinator deletes what is redundant
                    "compression.type": "producer",
                    "min.insync.replicas": self._min_isr(
                        "share.coordinator.state.topic.min.isr", factor
                    ),
                    "retention.ms": "-1",
                    "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
                },
            )
        return CreatableTopic(
            name=name,
            num_partitions=self._set_or_default("num.partitions"),
            replication_factor=self._set_or_default("default.replication.factor"),
        )

    def _set_or_default(self, name: str) -> int:
        """Rule 4."""
        config = self._dynamic.current
        value = config.value(name)
        assert isinstance(value, int)
        return value if config.is_set(name) else _CONTROLLERS_DEFAULT

    def _replication_factor(self, name: str) -> int:
        """Rule 3."""
        config = self._dynamic.current
        factor = config.value(name)
        assert isinstance(factor, int)
        if config.is_set(name) or not config.is_controller:
            return factor
        # The other voters are brokers, too, which may not have registered yet.
        brokers = max(len(self._metadata.image.brokers), len(config.controller_quorum_voters))
        return max(1, min(factor, brokers))

    def _min_isr(self, name: str, replication_factor: int) -> str:
        """The value of min.insync.replicas; rule 3 for it: as many as there are."""
        config = self._dynamic.current
        min_isr = config.value(name)
        assert isinstance(min_isr, int)
        return str(min_isr if config.is_set(name) else min(min_isr, replication_factor))

    @staticmethod
    def _internal(
        name: str, num_partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=num_partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
        )


def _without_message(when_done: Callable[[ErrorCode], None]) -> _WhenDone:
    return lambda code, _message: when_done(code)
