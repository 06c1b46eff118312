"""What each node knows of a guest's rights at each instant: what its answers must agree with.

Owns: `Rights`, which are read from an image without the authorizer's help, and `RightsHistory`, an
invariant: the metadata up to an offset says the same of rights on every node.

Called by: seeds whose cluster is secured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from kraftrio.kraft_meta.metadata.acl_image import Acl
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.metadata.scram_image import ScramUser
from kraftrio.testing.simulation.cluster import SimCluster
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.protocol.acls import AclOperation, AclPermissionType, PatternType
from tests.sim.logins import SHA_256

GUEST = "guest"
GUARDED = "guarded"  # the topic


class Rights(NamedTuple):
    """What an image says of the guest.

    Attributes:
        salt: of its credential; None: it has none.
    """

    may_read: bool
    may_write: bool
    salt: bytes | None


NO_RIGHTS = Rights(False, False, None)


def rights_of(image: MetadataImage) -> Rights:
    """Read the guest's rights out of an image."""
    credential = image.scram_credentials.get(ScramUser(GUEST, SHA_256))
    return Rights(
        _may(image, AclOperation.READ),
        _may(image, AclOperation.WRITE),
        None if credential is None else bytes(credential.salt),
    )


def _may(image: MetadataImage, operation: AclOperation) -> bool:
    said = {acl.permission_type for acl in image.acls.values() if _counts(acl, operation)}
    return said == {AclPermissionType.ALLOW}


def _counts(acl: Acl, operation: AclOperation) -> bool:
    if acl.operation not in (operation, AclOperation.ALL):
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return GUARDED.startswith(acl.resource_name)
    return acl.resource_name in (GUARDED, "*")


class RightsHistory:
    """See the module."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._images: dict[int, MetadataImage] = {}
        self._by_offset: dict[int, Rights] = {}
        # By node: since when it has known what, in order.
        self._known: dict[int, list[tuple[float, Rights]]] = defaultdict(
            lambda: [(-math.inf, NO_RIGHTS)]
        )

    def check(self) -> None:
        """Note what nodes know now; called whenever the world is at rest."""
        for node_id, node in self._cluster.nodes.items():
            if node.node is None:
                continue
            image = node.quorum.image
            if image is self._images.get(node_id):
                continue
            self._images[node_id] = image
            rights = rights_of(image)
            others = self._by_offset.setdefault(image.offset, rights)
            if others != rights:
                raise SimulationFailure(
                    f"by the metadata up to {image.offset} the guest has {rights} on {node.name},"
                    f" and {others} on another node"
                )
            known = self._known[node_id]
            if known[-1][1] != rights:
                known.append((self._cluster.world.now_s, rights))

    def newest(self, node_id: int) -> Rights:
        """What a node knows now."""
        return self._known[node_id][-1][1]

    def held(
        self, node_id: int, wanted: Callable[[Rights], bool], begin_s: float, end_s: float
    ) -> bool:
        """Whether something was so on a node at some instant of a time."""
        known = self._known[node_id]
        ends = [since_s for since_s, _ in known[1:]] + [math.inf]
        return any(
            wanted(rights) and since_s <= end_s and until_s >= begin_s
            for (since_s, rights), until_s in zip(known, ends, strict=True)
        )
