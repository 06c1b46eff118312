"""Reports to the controller in which log directory each replica of this broker lies.

Owns: `DirectoryAssignments`: the reports that wait, and the one AssignReplicasToDirs request that
is under way. Rules:
1. What comes within some milliseconds, and while a request is under way, goes in one request of a
   bounded size (`gathered_requests`). Of one replica the newest report counts.
2. A report is checked again before it is sent: it is dropped if the metadata has it already, or
   does not place the replica here any more.
3. What was refused, or not decided, is sent again after a pause, for as long as rule 2 lets it.

Called by `unmade_logs` and `moves`. AssignReplicasToDirs version 0 (KIP-858); Kafka's
counterpart: AssignmentsManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import ControllerPort, SchedulerPort
from kraftrio.broker.replica.isr.gathered_requests import GatheredRequests, PartitionKey
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    AssignReplicasRequestDirectoryData,
    AssignReplicasRequestPartitionData,
    AssignReplicasRequestTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

_log = logging.getLogger("kraftrio.replicas")

_VERSION = 0
_GATHER_MS = 5
_RETRY_MS = 500
_MAX_REPLICAS = 2250  # in one request


class DirectoryAssignments:
    """See the module; one per broker.

    Args:
        controller: the way to the active controller.
        broker_epoch: the epoch of this broker's registration, as it is now.
        metadata: what this broker knows already.
        scheduler: for the pauses.
    """

    def __init__(
        self,
        controller: ControllerPort,
        broker_id: int,
        broker_epoch: Callable[[], int],
        metadata: MetadataCache,
        scheduler: SchedulerPort,
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._requests: GatheredRequests[bytes] = GatheredRequests(scheduler, self._send)

    def place(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """A replica lies in that directory (or is LOST)."""
        self._requests.waiting[topic_id, partition] = directory_id
        self._requests.send_after(_GATHER_MS)

    def _is_new(self, key: PartitionKey, directory_id: bytes) -> bool:
        """Rule 2."""
        topic = self._metadata.image.topics_by_id.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        return (
            partition is not None
            and self._broker_id in partition.replicas
            and partition.directory(self._broker_id) != directory_id
        )

    def _send(self) -> None:
        requests = self._requests
        reports = {key: one for key, one in requests.waiting.items() if self._is_new(key, one)}
        requests.under_way = dict(islice(reports.items(), _MAX_REPLICAS))
        requests.waiting = {
            key: one for key, one in reports.items() if key not in requests.under_way
        }
        if not requests.under_way:
            return
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=_directories(requests.under_way),
        )
        self._controller.submit(request, api_version=_VERSION).then(self._on_answer)

    def _on_answer(self, response: AssignReplicasToDirsResponse) -> None:
        failed = self._requests.take_answered()
        code = response.error_code
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if partition.error_code == ErrorCode.NONE:
                        failed.pop((topic.topic_id, partition.partition_index), None)
                    else:
                        code = partition.error_code
        if failed:
            _log.warning(
                "replica directories not assigned, retrying count=%d reason=%s",
                len(failed), code.name,
            )  # fmt: skip
            self._requests.waiting = failed | self._requests.waiting
        self._requests.send_after(_RETRY_MS if failed else 0)


def _directories(placed: dict[PartitionKey, bytes]) -> list[AssignReplicasRequestDirectoryData]:
    """The replicas by directory and topic, in the order in which they came."""
    directories: dict[bytes, AssignReplicasRequestDirectoryData] = {}
    topics: dict[tuple[bytes, bytes], AssignReplicasRequestTopicData] = {}
    for (topic_id, index), directory_id in placed.items():
        directory = directories.get(directory_id)
        if directory is None:
            directory = AssignReplicasRequestDirectoryData(id=directory_id)
            directories[directory_id] = directory
        topic = topics.get((directory_id, topic_id))
        if topic is None:
            topic = AssignReplicasRequestTopicData(topic_id=topic_id)
            topics[directory_id, topic_id] = topic
            directory.topics.append(topic)
        topic.partitions.append(AssignReplicasRequestPartitionData(partition_index=index))
    return list(directories.values())
