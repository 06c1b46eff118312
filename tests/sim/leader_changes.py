"""Several leader changes that reach a broker at once.

Owns: `LeaderChanges`, which the nemesis plays: the metadata of a leader is held back (as by a fetch
that takes long), meanwhile another broker leads and dies, and it leads again: it learns of an epoch
two above its own without having heard that it lost the leadership in between. Whatever it knew of
its followers is of a former epoch, and may not be so any more.

The metadata is held back only at nodes that vote for nothing: the quorum's leader gets it first.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

import trio

from kraftrio.kraft_meta.metadata.image import MetadataImage, PartitionImage
from kraftrio.testing.simulation.cluster import SimCluster, SimNode
from kraftrio.wire.messages.admin import ElectLeadersRequest
from tests.sim.client import SimClient, Unavailable

_DEADLINE_S = 8.0
_TIMEOUT_MS = 3_000


class Owner(Protocol):
    """What the nemesis offers."""

    def some_node(self) -> SimNode | None: ...

    async def restart(self, node: SimNode) -> None:
        """Wait, and start it if it does not run."""


class HeldMetadata:
    """What is committed reaches one node only at `release`."""

    def __init__(self, node: SimNode) -> None:
        self._publication = node.quorum._publication
        self._incarnation = node.incarnation
        self._node = node
        self._high_watermark = -1
        self._apply = self._publication.apply
        self._publication.apply = self._hold  # type: ignore[method-assign]

    def _hold(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark

    @staticmethod
    def holds(node: SimNode) -> bool:
        """Return whether a node's metadata is held back already."""
        return "apply" in vars(node.quorum._publication)

    def release(self) -> None:
        """Let the node have all of it at once."""
        del self._publication.apply
        if self._high_watermark >= 0 and self._node.incarnation is self._incarnation:
            self._apply(self._high_watermark)


class LeaderChanges:
    """See the module."""

    def __init__(self, owner: Owner, cluster: SimCluster, rng: Random, client: SimClient) -> None:
        self._owner = owner
        self._cluster = cluster
        self._rng = rng
        self._client = client

    def _image(self) -> MetadataImage | None:
        for node in self._cluster.controllers:
            if node.node is not None and node.quorum.is_active_controller:
                return node.quorum.image
        return None

    async def skipped_epochs(self) -> None:
        """Let a broker lead, not lead, and lead again, and learn only of the end of it."""
        second = self._owner.some_node()
        if second is None or not second.is_broker:
            return
        second.crash()  # so that others lead what it should
        moved = await self._until(lambda: self._leads(second) == [])
        await self._restart_now(second)
        first = self._led_instead_of(second)
        if not moved or first is None or not await self._until(lambda: self._is_in_isrs(second)):
            return
        await self._change_twice(first, second)

    async def _change_twice(self, first: SimNode, second: SimNode) -> None:
        rng, internet = self._rng, self._cluster.internet
        if rng.random() < 0.7:
            internet.hang(first.name, second.name)  # some of what is not committed is elsewhere
            await trio.sleep(rng.uniform(0.02, 0.5))
        if not first.is_running or not second.is_running or HeldMetadata.holds(first):
            return  # another such change may have begun meanwhile
        held = HeldMetadata(first)
        try:
            await self._elect(second)
            internet.mend(first.name, second.name)
            await trio.sleep(rng.uniform(0.02, 0.4))
            second.crash()
            await self._until(lambda: self._leads(second) == [])
            await trio.sleep(rng.uniform(0.0, 0.2))
        finally:
            internet.mend(first.name, second.name)
            held.release()
        await self._owner.restart(second)

    async def _restart_now(self, node: SimNode) -> None:
        if not node.is_running:
            node.start()
        await self._until(lambda: node.is_ready)

    async def _until(self, condition: Callable[[], bool]) -> bool:
        with trio.move_on_after(_DEADLINE_S):
            while not condition():  # noqa: ASYNC110
                await trio.sleep(0.02)
            return True
        return False

    async def _elect(self, preferred: SimNode) -> None:
        """Elect the preferred leaders, by a broker that is not held back."""
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=None, timeout_ms=_TIMEOUT_MS
        )
        self._client.addresses.setdefault(preferred.node_id, (preferred.name, 9092))
        try:
            await self._client.call_node(preferred.node_id, request)
        except Unavailable as error:
            self._client.note(f"elect: {error}")

    # -- who leads ------------------------------------------------------------------------------

    def _leads(self, node: SimNode) -> list[int] | None:
        """The leader epochs of what a node leads; None: nobody knows."""
        image = self._image()
        if image is None:
            return None
        return [p.leader_epoch for p in _partitions(image) if p.leader == node.node_id]

    def _led_instead_of(self, second: SimNode) -> SimNode | None:
        """A broker that leads what `second` should, and can be held back."""
        image = self._image()
        leaders = {
            partition.leader
            for partition in (_partitions(image) if image is not None else ())
            if partition.replicas[0] == second.node_id and len(partition.replicas) > 1
        }
        nodes = [self._cluster.nodes[i] for i in sorted(leaders - {-1, second.node_id})]
        nodes = [n for n in nodes if n.node is not None and not n.is_controller and not n.is_paused]
        nodes = [n for n in nodes if not HeldMetadata.holds(n)]
        return self._rng.choice(nodes) if nodes else None

    def _is_in_isrs(self, node: SimNode) -> bool:
        image = self._image()
        return image is not None and all(
            node.node_id in p.isr for p in _partitions(image) if node.node_id in p.replicas
        )


def _partitions(image: MetadataImage) -> list[PartitionImage]:
    return [p for topic in image.topics_by_name.values() for p in topic.partitions.values()]
