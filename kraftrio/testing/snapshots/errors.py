"""What is wrong with a snapshot, in one sentence.

Called by: the modules of this folder.
"""

from __future__ import annotations


class SnapshotError(ValueError):
    """There cannot be such a snapshot, or it does not fit the cluster; the text says why."""
