"""Log directories without room: partitions led there get another leader, followers there wait.

A full disk under a leader need not stop a partition whose other replicas have room. Rules:
1. A leader whose append finds no room proposes an ISR without itself (`IsrKeeper.resign`), as soon
   as the rest of the ISR has all that it has and is enough for min.insync.replicas; each further
   append that fails tries that again. The controller makes one of them the leader.
2. What this broker is to follow in such a directory then waits until there is room. At its log's
   end a follower would join the ISR again, be preferred as the leader, and hold up acks=all with
   the next record, which it cannot write.
3. There is room once a probe (a file of some size) can be written.

Owns: `FullDirectories`, which stands before the fetchers. What was followed before its directory
was full goes on trying, and leaves the ISR by falling behind.

Called by `disk_errors` (`on_no_space`) and `replica_roles`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from kraftrio.base.timers import Timers
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.ports import FetcherManager
from kraftrio.wire.primitives import TopicPartition

_log = logging.getLogger("kraftrio.replicas")

_PROBE_INTERVAL_MS: Final = 1000


class FullDirectories:
    """See the module; itself a `FetcherManager`.

    Args:
        resign: lets another replica lead a partition, if one can (rule 1).

    Attributes:
        fetchers: those that it stands before; set before the first metadata comes.
    """

    fetchers: FetcherManager

    def __init__(
        self, log_manager: LogManager, timers: Timers, resign: Callable[[Partition], None]
    ) -> None:
        self._resign = resign
        self._log_manager = log_manager
        self._timers = timers
        self._full: list[LogDir] = []
        self._waiting: dict[TopicPartition, Callable[[], None]] = {}

    def on_no_space(self, partition: Partition) -> None:
        """The directory of this partition has no room; if it is led here, let another replica."""
        log_dir = self._log_manager.dir_of(partition.topic_partition)
        if log_dir is not None and log_dir not in self._full:
            self._add(log_dir)
        self._resign(partition)

    def _add(self, log_dir: LogDir) -> None:
        _log.warning("log directory is full, its leaderships move away directory=%s", log_dir.path)
        if not self._full:
            self._timers.schedule(_PROBE_INTERVAL_MS, self._probe)
        self._full.append(log_dir)

    def follow(
        self, topic_partition: TopicPartition, topic_id: bytes, leader_id: int, leader_epoch: int
    ) -> None:
        """Start fetching the partition, now or once its directory has room."""
        follow = partial(self.fetchers.follow, topic_partition, topic_id, leader_id, leader_epoch)
        if self._is_full(topic_partition):
            self.fetchers.stop(topic_partition)
            self._waiting[topic_partition] = follow
        else:
            self._waiting.pop(topic_partition, None)
            follow()

    def stop(self, topic_partition: TopicPartition) -> None:
        """Stop fetching it."""
        self._waiting.pop(topic_partition, None)
        self.fetchers.stop(topic_partition)

    def _is_full(self, topic_partition: TopicPartition) -> bool:
        return self._log_manager.dir_of(topic_partition) in self._full

    def _probe(self) -> None:
        for log_dir in list(self._full):
            if self._log_manager.has_room(log_dir):
                self._full.remove(log_dir)
                _log.info("log directory has space again directory=%s", log_dir.path)
        for topic_partition, follow in list(self._waiting.items()):
            if not self._is_full(topic_partition):
                del self._waiting[topic_partition]
                follow()
        if self._full:
            self._timers.schedule(_PROBE_INTERVAL_MS, self._probe)
