"""Which broker coordinates a group or a transactional id: looked up once, and remembered.

What was found is remembered until `forget`: a caller that is answered NOT_COORDINATOR, or cannot
reach the coordinator, calls it. Nothing is retried here.

Made by: `cluster`. Called by: members of groups, producers with transactions, admin clients.
FindCoordinator; KIP-699 (keys in a list, from version 4 on).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from kraftrio.clients.config import ClientConfig
from kraftrio.clients.errors import RetriableError, TimedOutError, error_for
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.clients.node import BrokerNode
from kraftrio.clients.nodes import Nodes
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from kraftrio.wire.protocol.api import ApiKey

GROUP_KEY_TYPE: Final = 0
TRANSACTION_KEY_TYPE: Final = 1

_FIRST_VERSION_WITH_LIST: Final = 4


class Coordinators:
    """The coordinators found so far.

    Args:
        on_unknown_broker: called when the coordinator is a broker that metadata does not name.
    """

    def __init__(
        self, nodes: Nodes, config: ClientConfig, on_unknown_broker: Callable[[], None]
    ) -> None:
        self._nodes = nodes
        self._config = config
        self._on_unknown_broker = on_unknown_broker
        self._known: dict[tuple[int, str], int] = {}

    def known(self, key: str, key_type: int = GROUP_KEY_TYPE) -> BrokerNode | None:
        """Return the coordinator that was found before; None if there is none to connect to."""
        node_id = self._known.get((key_type, key))
        return None if node_id is None else self._nodes.get(node_id)

    def forget(self, key: str, key_type: int = GROUP_KEY_TYPE) -> None:
        """Look a coordinator up again the next time."""
        self._known.pop((key_type, key), None)

    async def find(
        self, key: str, key_type: int = GROUP_KEY_TYPE, timeout_s: float | None = None
    ) -> int:
        """Return the node id of the coordinator of a group (or transactional id).

        Args:
            timeout_s: None is request_timeout_ms.

        Raises:
            CoordinatorNotAvailableError: there is none yet; try again after retry_backoff_ms.
            KafkaClientError: whatever else the broker answers, or none answers in time.
        """
        known = self.known(key, key_type)
        if known is not None:
            await trio.lowlevel.checkpoint()
            return known.node_id
        if timeout_s is None:
            timeout_s = self._config.request_timeout_ms / 1000
        failure: RetriableError | None = None
        deadline = trio.current_time() + timeout_s
        for node in self._nodes.candidates():
            try:
                response = await _ask(node, key, key_type, deadline)
            except RetriableError as error:
                failure = error
                continue
            address = _address(response)
            self._known[key_type, key] = address.node_id
            if self._nodes.get(address.node_id) is None:
                self._nodes.add(address)
                self._on_unknown_broker()
            return address.node_id
        raise failure or TimedOutError("no broker could be asked in time")


async def _ask(
    node: BrokerNode, key: str, key_type: int, deadline: float
) -> FindCoordinatorResponse:
    """Ask in the broker's version: from 4 on keys go into the list, before into the field."""
    with trio.move_on_at(deadline) as scope:
        await node.connect()
    if scope.cancelled_caught:
        raise TimedOutError(f"cannot connect to {node.host}:{node.port} in time")
    version = node.versions.choose(ApiKey.FIND_COORDINATOR)
    request = (
        FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        if version >= _FIRST_VERSION_WITH_LIST
        else FindCoordinatorRequest(key=key, key_type=key_type)
    )
    left_s = max(deadline - trio.current_time(), 0.001)
    response: FindCoordinatorResponse = await node.request(request, left_s, max_version=version)
    return response


def _address(response: FindCoordinatorResponse) -> BrokerAddress:
    """Return what the answer names.

    Raises:
        KafkaClientError: it is a refusal.
    """
    reported = response.coordinators[0] if response.coordinators else response
    if reported.error_code != ErrorCode.NONE:
        raise error_for(reported.error_code, reported.error_message)
    return BrokerAddress(reported.node_id, reported.host, reported.port)
