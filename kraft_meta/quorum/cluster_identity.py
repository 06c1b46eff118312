"""Which cluster a node belongs to: `ClusterIdentity`.

Owns: the id of the cluster as far as this node knows it. Rules:
1. A node whose folders or whose configuration name a cluster belongs to that one and to no other.
2. A node that knows none takes the id that the metadata log has; the first leader of a new cluster
   draws it. Where and how the voters are addressed does not matter.
3. Another id is ClusterIdError, with both ids and what says so.

Called by: what names the cluster in a request or checks it; quorum/service.py (`learn`).
"""

from __future__ import annotations


class ClusterIdError(Exception):
    """The node belongs to another cluster than the quorum it meets."""


class ClusterIdentity:
    """See the module.

    Args:
        cluster_id: what is known at the start, "" if nothing is.
        origin: where that comes from, for people.
    """

    def __init__(self, cluster_id: str = "", origin: str = "") -> None:
        self.cluster_id = cluster_id
        self._origin = origin

    @property
    def is_known(self) -> bool:
        return bool(self.cluster_id)

    @property
    def on_wire(self) -> str | None:
        """The id as requests have it: null, if it is not known."""
        return self.cluster_id or None

    def learn(self, cluster_id: str, source: str) -> None:
        """Take the id that `source` names. Raises ClusterIdError when it is another one."""
        if not self.cluster_id:
            self.cluster_id, self._origin = cluster_id, source
        elif cluster_id != self.cluster_id:
            raise ClusterIdError(
                f"{self._origin} names cluster {self.cluster_id},"
                f" but {source} is of cluster {cluster_id}"
            )

    def admits(self, cluster_id: str | None) -> bool:
        """Return whether a request that names this id may be of this cluster."""
        return not cluster_id or not self.cluster_id or cluster_id == self.cluster_id
