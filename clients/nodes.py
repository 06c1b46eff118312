"""The brokers that a client knows: one `BrokerNode` for each id, and the bootstrap servers.

Rules:
1. A node stays while metadata names its broker, or it is connected; where a broker is, metadata
   says, and a coordinator that it does not name yet is taken at its word (`add`).
2. What any broker knows is asked of the connected one with the least to do, else of any other;
   the bootstrap servers come last (KIP-899). They have negative ids.

Called by: `cluster`, `coordinators`, `metadata_fetcher`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import trio

from kraftrio.clients.config import ClientConfig, parse_bootstrap_servers
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.clients.node import BrokerNode
from kraftrio.net.transport import Network


class Nodes:
    """See the module.

    Args:
        nursery: in which the nodes' connections run.
        on_change: called, synchronously, when a node becomes ready or is lost.
    """

    def __init__(
        self,
        config: ClientConfig,
        network: Network,
        nursery: trio.Nursery,
        rng: random.Random,
        on_change: Callable[[BrokerNode], None],
    ) -> None:
        self.bootstrap_addresses = parse_bootstrap_servers(config.bootstrap_servers)
        self._config = config
        self._network = network
        self._nursery = nursery
        self._rng = rng
        self._on_change = on_change
        self._brokers: Mapping[int, BrokerAddress] = {}
        self._nodes: dict[int, BrokerNode] = {}
        self._bootstrap: list[BrokerNode] = []

    def get(self, node_id: int) -> BrokerNode | None:
        """Return the node with this id; None if its address is unknown."""
        found = self._nodes.get(node_id)
        if found is None and (address := self._brokers.get(node_id)) is not None:
            found = self.add(address)
        return found

    def add(self, address: BrokerAddress) -> BrokerNode:
        """Know a broker."""
        node = self._nodes[address.node_id] = self._make(
            address.node_id, address.host, address.port
        )
        return node

    def update(self, brokers: Mapping[int, BrokerAddress]) -> None:
        """Take over where the brokers are, as metadata says."""
        self._brokers = brokers
        for node_id, node in list(self._nodes.items()):
            address = brokers.get(node_id)
            if address is not None:
                node.host, node.port = address.host, address.port
            elif brokers and not node.is_connected and not node.is_connecting:
                del self._nodes[node_id]

    @property
    def known(self) -> int:
        """How many brokers the metadata names."""
        return len(self._brokers)

    @property
    def connected(self) -> list[BrokerNode]:
        """Those that there is a connection to."""
        return [node for node in (*self._nodes.values(), *self._bootstrap) if node.is_connected]

    def candidates(self) -> list[BrokerNode]:
        """The nodes to ask what any broker knows, best first."""
        known = [node for node_id in self._brokers if (node := self.get(node_id)) is not None]
        now = trio.current_time()
        ranked = sorted(
            known,
            key=lambda node: (
                not node.is_connected,
                node.requests_in_flight if node.is_connected else max(node.ready_at, now),
                self._rng.random(),
            ),
        )
        if not known or self._config.metadata_recovery_strategy == "rebootstrap":
            ranked += self._bootstrap_nodes()
        return ranked

    def close_idle_bootstrap(self) -> None:
        """Close the connections to bootstrap servers: the brokers are known."""
        for node in self._bootstrap:
            if not node.requests_in_flight:
                node.close()

    def _bootstrap_nodes(self) -> list[BrokerNode]:
        if not self._bootstrap:
            self._bootstrap = [
                self._make(-1 - index, host, port)
                for index, (host, port) in enumerate(self.bootstrap_addresses)
            ]
        return self._bootstrap

    def _make(self, node_id: int, host: str, port: int) -> BrokerNode:
        return BrokerNode(
            node_id,
            host,
            port,
            self._config,
            self._network,
            self._nursery,
            self._rng,
            self._on_change,
        )
