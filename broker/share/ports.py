"""What share partitions need from outside: where their state is kept (`ShareStateClient` fits)."""

from __future__ import annotations

from typing import Protocol

from kraftrio.base.deferred import Deferred
from kraftrio.broker.share_state import SharePartitionKey, SharePartitionState, ShareStateWrite
from kraftrio.wire.errors import ErrorCode, KafkaError


class ShareState(Protocol):
    """The share coordinators, wherever they are; an error is a value, not raised."""

    def read(
        self, key: SharePartitionKey, leader_epoch: int
    ) -> Deferred[SharePartitionState | KafkaError]:
        """Read what is kept, as the leader of this epoch; earlier ones are fenced from then on."""
        ...

    def write(self, key: SharePartitionKey, write: ShareStateWrite) -> Deferred[ErrorCode]:
        """Keep changes; a caller that needs an order waits for the answer."""
        ...
