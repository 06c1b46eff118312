"""Ports: what several rooms need of the rest of the broker, each once.

Protocols, and the values that they give. `node` passes the real implementations in, tests pass
fakes with the same contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kraftrio.base.deferred import Deferred
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.quorum.voter_changes import CurrentVoters
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

__all__ = [
    "BrokerRequests",
    "ClientsController",
    "ControllerPort",
    "EndingTransactions",
    "FutureReplica",
    "LogDirectory",
    "LogDirsPort",
    "LoggerPort",
    "MetadataPort",
    "MetadataQuorum",
    "ReplicaMovesPort",
    "SchedulerPort",
    "TimerPort",
    "TransactionVerifier",
    "UnflushedError",
    "VerificationResult",
]


class ControllerPort(Protocol):
    """Reaches the active controller, wherever it is."""

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        """Send a request; its response comes when it is committed, or an error response."""


class ClientsController(ControllerPort, Protocol):
    """Reaches the active controller on behalf of a client, which it names."""

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        """Send a request for a client whose changes may have to be counted; else as `submit`."""


class MetadataQuorum(ClientsController, Protocol):
    """This node's part of the metadata quorum; the quorum service is one.

    Its `submit` answers with `NotController` where another node decides.
    """

    @property
    def leader_id(self) -> int:
        """The node that leads the quorum, -1 when unknown."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_active_controller(self) -> bool:
        """This node decides about the cluster now."""

    @property
    def image(self) -> MetadataImage:
        """Everything that is committed."""

    @property
    def voters(self) -> CurrentVoters:
        """The voters; subscribe to be notified of changes."""

    def on_leader_change(self, callback: Callable[[int, int], object], /) -> None:
        """Call `callback(leader_id, leader_epoch)` now and at every change."""

    def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker now, unless it has another epoch or this node does not decide."""


class MetadataPort(Protocol):
    """The newest published metadata image."""

    image: MetadataImage


class TimerPort(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call if it has not happened yet."""


class SchedulerPort(Protocol):
    """Calls something later."""

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> TimerPort:
        """Call `callback` after delay_ms."""


class BrokerRequests(Protocol):
    """The way to the brokers of the cluster, this one included (`peers/broker_links`)."""

    @property
    def broker_id(self) -> int:
        """This broker."""

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        """Send a request, and return its response; it fails with ConnectionLost."""


class EndingTransactions(Protocol):
    """The transactions whose markers this broker's coordinators write (`marker_sender`)."""

    def when_ended(self, transactional_id: str, /) -> Deferred[None] | None:
        """Wait for an id's end, or a little while; None: none of this broker's is ending."""


class FutureReplica(NamedTuple):
    """The copy of a replica in the log directory that it moves to."""

    size_bytes: int
    offset_lag: int  # how far its log end offset is behind


class LogDirectory(NamedTuple):
    """One directory of log.dirs: what it holds, or the error that made it unusable."""

    path: str
    partitions: Mapping[TopicPartition, int]  # to the size of the log in bytes
    total_bytes: int = -1
    usable_bytes: int = -1
    error: KafkaError | None = None
    futures: Mapping[TopicPartition, FutureReplica] = {}

    def has(self, topic_partition: TopicPartition) -> bool:
        """Whether a replica, or a future one, is here."""
        return topic_partition in self.partitions or topic_partition in self.futures


class ReplicaMovesPort(Protocol):
    """Moves replicas between log directories."""

    def alter(self, topic_partition: TopicPartition, path: str) -> ErrorCode:
        """Start to move a replica to the directory at `path`; NONE when it moves or is there."""


class LogDirsPort(Protocol):
    """Describes what the log directories hold."""

    def log_directories(self) -> Sequence[LogDirectory]:
        """Return every directory of log.dirs."""


class LoggerPort(Protocol):
    """The log levels of this process, by Kafka's level names."""

    def levels(self) -> Mapping[str, str]:
        """Return the level of each known logger, the root's under `root`."""

    def set_level(self, name: str, level: str | None) -> None:
        """Set a logger's level; None makes it follow its parent."""


class VerificationResult(NamedTuple):
    """What a transaction's coordinator says about a partition.

    Attributes:
        error: NONE: the partition is part of the producer's open transaction.
        guard: the log's own, which goes with the append: the log refuses that once the transaction
            has ended.
    """

    error: ErrorCode
    guard: Any = None


class UnflushedError(KafkaError):
    """An append that is in the log, though its flush failed (KAFKA_STORAGE_ERROR).

    It will be committed as any other, and may be already. To whoever asked for it it is not
    acknowledged: sent again, it is a duplicate.

    Attributes:
        base_offset: of its first record.
    """

    def __init__(self, base_offset: int, message: str | None) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self.base_offset = base_offset


class TransactionVerifier(Protocol):
    """Has transactions verified by their coordinator before anything is written for them."""

    def verify(
        self,
        topic_partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        adds_partition: bool,
        knows_abortable: bool,
    ) -> Deferred[VerificationResult]:
        """Ask whether a partition that is led here is part of a producer's open transaction.

        No coordinator is asked if the log says so. It does not fail, but returns error codes.

        Args:
            adds_partition: it becomes part of the transaction (KIP-890, transaction.version 2).
            knows_abortable: the client knows TRANSACTION_ABORTABLE; else INVALID_TXN_STATE stands
                in its place.
        """
