"""All share partitions of this broker, and the share sessions of its clients: `SharePartitions`.

Rules
1. A share partition is made by the first fetch of a group that finds its partition led here, and
   ends as `LedSharePartition` says; when no member of its group has a session here any more, it
   ends as soon as nothing is left to be done.
2. A session ends with its connection. What its member has of the session's partitions is taken back
   then, and when the member ends it.

Called by the handlers of ShareFetch and ShareAcknowledge, and with new metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from kraftrio.base.statistics import Statistics
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.hosted_replicas import HostedReplicas
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.share.led_share_partition import LedSharePartition, ShareServices
from kraftrio.broker.share.sessions import (
    SessionPartition,
    ShareSession,
    ShareSessionKey,
    ShareSessions,
)
from kraftrio.broker.share_state import SharePartitionKey
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

_RELEASED_AT_ONCE: Final = 50  # partitions


class SharePartitions:
    """See the module.

    Attributes:
        sessions: of all groups.
    """

    def __init__(
        self,
        hosted: HostedReplicas,
        metadata: MetadataCache,
        services: ShareServices,
        sessions: ShareSessions,
    ) -> None:
        self.sessions = sessions
        self._hosted = hosted
        self._metadata = metadata
        self._services = services
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._ends: dict[ShareSession, tuple[ClientInfo, Callable[[], None]]] = {}

    # -- share partitions -------------------------------------------------------------------------

    def lead(self, group_id: str, named: SessionPartition) -> LedSharePartition:
        """The share partition to fetch from; it may still be loading.

        Raises:
            KafkaError: an unknown topic or partition, or one that is not led here.
        """
        topic = self._metadata.topic_name(named.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._hosted.leader(TopicPartition(topic, named.partition))
        key = SharePartitionKey(group_id, *named)
        led = self._led.get(key)
        if led is not None and led.partition is partition and led.is_current:
            led.may_rest = False
            return led
        if led is not None:
            led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        led = self._led[key] = LedSharePartition(key, partition, self._services, self._on_end)
        led.load()
        return led

    def find(self, group_id: str, named: SessionPartition) -> LedSharePartition:
        """The share partition whose records a member speaks of.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER where that is why there is none here, else
                UNKNOWN_TOPIC_OR_PARTITION.
        """
        led = self._led.get(SharePartitionKey(group_id, *named))
        if led is not None and led.is_current:
            return led
        topic = self._metadata.topic_name(named.topic_id)
        if topic is not None:
            self._hosted.leader(TopicPartition(topic, named.partition))
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(code, code.sentence)

    def _on_end(self, led: LedSharePartition) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]

    def metadata_changed(self) -> None:
        """Leaders may have changed, and topics gone."""
        for led in [led for led in self._led.values() if not led.is_current]:
            led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # -- sessions ---------------------------------------------------------------------------------

    def open_session(
        self, key: ShareSessionKey, partitions: Iterable[SessionPartition], client: ClientInfo
    ) -> ShareSession:
        """Open a session in place of an earlier one, whose member keeps what it has.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        earlier = self.sessions.find(key)
        if earlier is not None:
            self._forget(earlier)
        session = self.sessions.open(key, partitions)
        end = partial(self.end_session, session)
        client.on_close.append(end)
        self._ends[session] = client, end
        return session

    def end_session(self, session: ShareSession) -> None:
        """End a session, and take back what its member has."""
        if session.is_ended:
            return
        self._forget(session)
        self._release(session.key, list(session.partitions))

    def _release(self, member: ShareSessionKey, partitions: list[SessionPartition]) -> None:
        """Take back what a member has, some partitions in each turn of the event loop."""
        group_id, member_id = member
        for named in partitions[:_RELEASED_AT_ONCE]:
            led = self._led.get(SharePartitionKey(group_id, *named))
            if led is not None and led.is_loaded:
                led.release(member_id)
        rest = partitions[_RELEASED_AT_ONCE:]
        if rest:
            self._services.timers.schedule(0, partial(self._release, member, rest))
        elif not self.sessions.has_group(group_id):
            for led in [led for led in self._led.values() if led.key.group_id == group_id]:
                led.rest()

    def _forget(self, session: ShareSession) -> None:
        self.sessions.end(session)
        client, end = self._ends.pop(session)
        if end in client.on_close:
            client.on_close.remove(end)

    def statistics(self) -> Statistics:
        """How many share partitions and sessions there are, and how many fetches wait."""
        led = self._led.values()
        return {
            "share_partitions": len(led),
            "share_sessions": len(self.sessions),
            "records_in_flight": sum(one.core.in_flight_count for one in led),
            "waiting_share_fetches": sum(len(one.turns) for one in led),
        }
