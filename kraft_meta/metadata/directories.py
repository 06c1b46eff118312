"""In which log directory of its broker each replica lies: the ids, and what they say (KIP-858).

Owns: the reserved ids and the arithmetic of a partition's directories, which stand beside its
replicas in the same order. Rules:
1. A directory has the random id of its meta.properties. MIGRATING: it is not known where the
   replica lies (as in logs from before directories were kept). UNASSIGNED: the replica is new, and
   its broker will report its directory. LOST: it had one, which is gone.
2. No directories at all, (), are MIGRATING ones: what is unknown takes no space.
3. A replica whose directory is unknown may be online; one in a directory that its broker did
   not register, or has reported since, is not.

Called by: image.py, partition_change.py, directory_control.py, topic_control.py, and the broker.
Kafka's counterpart: DirectoryId.
Tested by: tests/unit/kraft_meta/controller/test_directory_control.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

MIGRATING: Final = bytes(16)
UNASSIGNED: Final = bytes(15) + b"\x01"
LOST: Final = bytes(15) + b"\x02"


def is_online(directory: bytes, online: Sequence[bytes]) -> bool:
    """Return whether a replica in this directory can be used, given what its broker has online.

    A broker of which no directory is known has not said anything about them.
    """
    if directory == LOST:
        return False
    return directory in (MIGRATING, UNASSIGNED) or not online or directory in online


def directory_of(replicas: Sequence[int], directories: Sequence[bytes], broker_id: int) -> bytes:
    """Return where the replica on a broker lies; UNASSIGNED if there is no such replica."""
    if broker_id not in replicas:
        return UNASSIGNED
    return directories[replicas.index(broker_id)] if directories else MIGRATING


def directories_of(replicas: Sequence[int], placed: Mapping[int, bytes]) -> tuple[bytes, ...]:
    """Return the directories of replicas in their order (rule 2)."""
    found = tuple(placed.get(replica, MIGRATING) for replica in replicas)
    return () if all(directory == MIGRATING for directory in found) else found


@lru_cache(maxsize=1024)
def shared(directories: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return an equal value that is shared: there are far more partitions than values."""
    return directories


def placement(replicas: Sequence[int], directories: Sequence[bytes]) -> dict[int, bytes]:
    """Return the directories by broker, as far as they are known."""
    return dict(zip(replicas, directories, strict=True)) if directories else {}
