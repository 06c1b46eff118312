"""The way to the coordinator of one group: found, asked, and found again when it has moved.

Owns a connection of its own: what waits at the coordinator (a JoinGroup) keeps nobody else waiting,
and no fetch keeps a heartbeat or a commit waiting. Nothing is retried here; by the time that an
error says that the coordinator is another one, it is forgotten, and the next question looks it up.

Called by: the consumer and the share consumer.
"""

from __future__ import annotations

import logging
import random
from typing import Any

import trio

from kraftrio.clients.cluster import Cluster
from kraftrio.clients.config import ClientConfig
from kraftrio.clients.errors import (
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    KafkaClientError,
    RetriableError,
    TimedOutError,
)
from kraftrio.clients.node import BrokerNode
from kraftrio.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

_LOST_COORDINATOR = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
RETRIED_OF_COORDINATOR = frozenset(
    {
        *_LOST_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class GroupCoordinator:
    """See the module.

    Args:
        group_id: None: a client without a group, whose every question is refused.
        rng: for the jitter between attempts to connect.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ClientConfig,
        rng: random.Random,
        group_id: str | None,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._rng = rng
        self._group_id = group_id
        self._node: BrokerNode | None = None

    @property
    def group_id(self) -> str:
        """The group.

        Raises:
            InvalidGroupIdError: the client has none.
        """
        if self._group_id is None:
            raise InvalidGroupIdError("this needs a group_id")
        return self._group_id

    async def ask(
        self,
        request: Any,
        timeout_s: float | None = None,
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> Any:
        """Send a request to the coordinator; one that is not there is forgotten.

        Args:
            timeout_s: None is request_timeout_ms.

        Raises:
            KafkaClientError: as `Cluster.coordinator` and `Cluster.request`.
        """
        node = await self._find()
        if timeout_s is None:
            timeout_s = self._config.request_timeout_ms / 1000
        try:
            return await node.request(
                request, timeout_s, min_version=min_version, max_version=max_version
            )
        except RetriableError:
            self.forget()
            raise

    async def version(self, api_key: int, *, max_version: int | None = None) -> int:
        """Return the version that requests of an API to it will have; connects if need be.

        Raises:
            KafkaClientError: as `ask`.
        """
        node = await self._find()
        try:
            with trio.fail_after(self._config.request_timeout_ms / 1000):
                await node.connect()
        except trio.TooSlowError:
            raise TimedOutError(f"cannot connect to {node.host}:{node.port} in time") from None
        except RetriableError:
            self.forget()
            raise
        return node.versions.choose(api_key, max_version=max_version)

    async def _find(self) -> BrokerNode:
        """Find the coordinator, and return the way to it."""
        node_id = await self._cluster.coordinators.find(self.group_id)
        known = self._cluster.node(node_id)
        if known is None:
            self.forget()
            raise CoordinatorNotAvailableError(f"broker {node_id} is not known any more")
        node = self._node
        address = (node_id, known.host, known.port)
        if node is None or (node.node_id, node.host, node.port) != address:
            if node is not None:
                node.close()
            node = self._node = BrokerNode(
                *address,
                self._config,
                self._cluster.network,
                self._cluster.nursery,
                self._rng,
                self._cluster.note_refusal,
            )
        return node

    async def leave(self, request: Any) -> None:
        """Send a leave; where that fails the group notices by itself, after the session."""
        try:
            await self.ask(request)
        except KafkaClientError as error:
            logger.info("leaving the group failed, it will notice: %s", error)

    def forget(self) -> None:
        """Look it up again the next time."""
        self._cluster.coordinators.forget(self.group_id)

    def note_error(self, code: ErrorCode) -> None:
        """Forget the coordinator if its answer says that it is not one."""
        if code in _LOST_COORDINATOR:
            self.forget()
