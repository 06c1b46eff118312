"""The followers' side of replication: one task for each leader broker that this broker follows.

A task lives while there is something to follow from its leader (`follower/leader_fetcher`).

Called by: the replica manager (`follow`, `stop`), the metadata publisher (`metadata_changed`), the
node (`run`).
"""

from __future__ import annotations

import trio

from kraftrio.base.owned_tasks import OwnedTasks
from kraftrio.base.statistics import LabelledStatistics, Statistics
from kraftrio.broker.replica.follower.leader_fetcher import FollowerContext, LeaderFetcher
from kraftrio.wire.primitives import TopicPartition


class ReplicaFetchers:
    """All that this broker follows, by leader."""

    def __init__(self, follower: FollowerContext) -> None:
        self._follower = follower
        self._leaders: dict[int, LeaderFetcher] = {}
        self._following: dict[TopicPartition, tuple[int, bytes]] = {}  # leader, topic id
        self._tasks = OwnedTasks()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch until cancelled; `follow` may be called before."""
        async with self._tasks.open():
            for leader_id, fetcher in self._leaders.items():
                self._tasks.start(self._run, leader_id, fetcher)
            task_status.started()
            await trio.sleep_forever()

    # -- what is followed -----------------------------------------------------------------------

    def follow(
        self, topic_partition: TopicPartition, topic_id: bytes, leader_id: int, leader_epoch: int
    ) -> None:
        """Fetch a partition from this leader, in this leader epoch, instead of any before."""
        assert leader_id not in (self._follower.broker_id, -1), "another broker leads"
        before = self._following.get(topic_partition)
        if before is not None and before != (leader_id, topic_id):
            self.stop(topic_partition)
        replica = self._follower.replicas.partition(topic_partition)
        assert replica is not None, f"{topic_partition} is not hosted here"
        self._following[topic_partition] = (leader_id, topic_id)
        fetcher = self._leaders.get(leader_id)
        if fetcher is None:
            fetcher = self._leaders[leader_id] = LeaderFetcher(self._follower, leader_id)
            self._tasks.start(self._run, leader_id, fetcher)
        fetcher.add(topic_partition, topic_id, leader_epoch, replica.log)

    def stop(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition, if it was; answers under way are dropped."""
        before = self._following.pop(topic_partition, None)
        if before is not None:
            leader_id, topic_id = before
            self._leaders[leader_id].remove(topic_id, topic_partition.partition)

    def metadata_changed(self) -> None:
        """A new image is published: leaders may have moved or come back."""
        for fetcher in self._leaders.values():
            fetcher.metadata_changed()

    @property
    def lag(self) -> dict[TopicPartition, int | None]:
        """How far each followed partition is behind its leader; None: not known yet."""
        return {
            partition.topic_partition: partition.lag
            for fetcher in self._leaders.values()
            for partition in fetcher.core.partitions()
        }

    def statistics(self) -> Statistics:
        """How many leaders and partitions are followed, and how far the last of them is behind."""
        lags = self.lag.values()
        return {
            "leaders": len(self._leaders),
            "partitions": len(lags),
            "max_lag_records": max((lag for lag in lags if lag is not None), default=0),
        }

    def labelled_statistics(self) -> LabelledStatistics:
        """How far each followed partition is behind, as far as is known."""
        return {
            "lag_records": {
                (topic, str(index)): lag
                for (topic, index), lag in self.lag.items()
                if lag is not None
            }
        }

    async def _run(self, leader_id: int, fetcher: LeaderFetcher) -> None:
        await fetcher.run()
        del self._leaders[leader_id]
