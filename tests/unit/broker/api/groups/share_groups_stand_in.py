"""The group coordinator of a broker with its handlers of share groups, over logs in memory.

One share coordinator keeps the states; leaders say how far their logs are (`log_end_offsets`).
"""

from __future__ import annotations

from dataclasses import replace
from types import GeneratorType
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.share_group_offsets import ShareGroupOffsetHandlers
from kraftrio.broker.api.groups.share_groups import ShareGroupHandlers
from kraftrio.broker.coordinator.share_initializer import ShareStateInitializer
from kraftrio.broker.peers.latest_offsets import LatestOffsets
from kraftrio.broker.peers.share_state_client import ShareStateClient
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.slices.sliced_work import do_at_once
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kraftrio.wire.messages.share_groups import ShareGroupHeartbeatRequest
from kraftrio.wire.protocol.api import APIS
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn
from tests.unit.broker.coordinator.share_state.share_stand_in import TOPIC, ShareStandIn

GROUP = "g"


class ShareGroupsStandIn(BrokerStandIn):
    """See the module. The topic has four partitions, and all settings are Kafka's.

    Attributes:
        failing_topic: states of this topic's partitions cannot be changed.
    """

    broker_id = 1

    def __init__(self, *, lead: bool = True, share_version: int = 1) -> None:
        self.authorizer: Authorizer = ALLOW_ALL
        self.log_end_offsets: dict[int, int | ErrorCode] = {}
        self.share_error: ErrorCode | None = None
        super().__init__(lead=lead)
        image = self.metadata.image
        features = image.features.set("share.version", share_version)
        self.metadata.image = replace(image, features=features)
        offsets = LatestOffsets(self, self.metadata, 1000)
        states, initializer = self.share_states, ShareStateInitializer(self.share_states)
        self.handlers |= {
            **ShareGroupHandlers(self.coordinator, self.metadata).table(),
            **ShareGroupOffsetHandlers(
                self.coordinator, self.metadata, states, initializer, offsets
            ).table(),
        }

    def share_coordinators(self) -> ShareStateClient:
        self.share = ShareStandIn(metadata=self.metadata)
        return ShareStateClient(self, lambda _key: 1, lambda: None, self.timers, self.timers, 1000)

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        """Ask the share coordinator, or the leader of the topic."""
        assert broker_id == 1
        if isinstance(request, ListOffsetsRequest):
            return Deferred.completed(self._list_offsets(request))
        response = self.share.request(request)
        if self.share_error is not None:
            for result in response.results:
                for partition in result.partitions:
                    partition.error_code = self.share_error
        return Deferred.completed(response)

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        assert topic.name == TOPIC
        answers = []
        for partition in topic.partitions:
            end = self.log_end_offsets[partition.partition_index]
            answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            if isinstance(end, ErrorCode):
                answer.error_code = end
            else:
                answer.offset = end
            answers.append(answer)
        topics = [ListOffsetsTopicResponse(name=topic.name, partitions=answers)]
        return ListOffsetsResponse(topics=topics)

    def request(self, request: Any, version: int | None = None) -> Any:
        """Send a request over the wire's bytes, and read the response's."""
        api = next(one for one in APIS.values() if one.request is type(request))
        version = api.max_version if version is None else version
        received, _ = decode(type(request), version, encode(request, version))
        client = ClientInfo("127.0.0.1", 5555, "PLAINTEXT")
        context = RequestContext(int(api.key), version, 1, "client", client, self.authorizer)
        response = self.handlers[api.key](received, context)
        if isinstance(response, GeneratorType):
            response = do_at_once(response)
        while isinstance(response, Deferred):
            response = response.value
        return decode(type(response), version, encode(response, version))[0]

    def beat(self, epoch: int, topics: list[str] | None = None, member_id: str = "m") -> Any:
        """Send a heartbeat."""
        return self.request(
            ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=epoch,
                subscribed_topic_names=topics,
            )
        )
