"""The library's own clients in a swarm: which programs run, and what they must have done at last.

Owns: `LibraryPrograms`. They work beside the small clients, on the topic that stays and on one that
comes and goes, under every fault that the seed has. Once the faults are over
1. producers know of each record whether it was written, readers have read all that is committed,
2. members of a group commit again, and
3. who uses the topic that is let be then has read what was written to it.

Called by: `simulation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kraftrio.testing.simulation.cluster import SimCluster
from kraftrio.wire.primitives import TopicPartition
from tests.sim.history import History
from tests.sim.library_clients import (
    GroupProgram,
    Machine,
    ProducerProgram,
    ReaderProgram,
    TopicProgram,
)

_IMPATIENT: dict[str, Any] = {"request_timeout_ms": 2_000, "metadata_max_age_ms": 5_000}
_GROUP = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, **_IMPATIENT}
_COOPERATIVE = ["cooperative-sticky", "range"]


class LibraryPrograms:
    """See the module.

    Args:
        kinds: which of `options.PROGRAMS` run.
        start: runs a program as a part of the simulation.
        end_of: tells how far a partition is committed, -1 if nobody knows.
    """

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        kinds: Sequence[str],
        topic_partitions: Sequence[TopicPartition],
        start: Callable[[Callable[[], Any]], None],
        end_of: Callable[[TopicPartition], int],
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._kinds = kinds
        self._tps = list(topic_partitions)
        self._start = start
        self._end_of = end_of
        self._rng = cluster.world.rng("programs")
        self._producers: list[ProducerProgram] = []
        self._readers: list[ReaderProgram] = []
        self._members: list[GroupProgram] = []
        self._topic: TopicProgram | None = None
        self._commits = 0

    async def begin(self, replication_factor: int) -> None:
        """Make what must be there before anything breaks."""
        if "topic" in self._kinds:
            self._topic = TopicProgram(self._machine("topics"), "fleeting")
            await self._topic.begin(replication_factor)

    def _machine(self, name: str) -> Machine:
        return Machine(self._cluster, name)

    def start(self) -> None:
        """Start all programs."""
        if "producer" in self._kinds:
            self._start_producer()
        if "reader" in self._kinds:
            reader = ReaderProgram(self._machine("lr0"), self._history, self._tps, **_IMPATIENT)
            self._readers.append(reader)
            self._start(reader.run)
        if "group" in self._kinds:
            self._start_group()
        if self._topic is not None:
            self._start_topic(self._topic)

    def _start_producer(self) -> None:
        rng = self._rng
        producer = ProducerProgram(
            self._machine("lp0"),
            self._history,
            self._tps[:2],
            interval_s=rng.choice((0.1, 0.5)),
            linger_ms=rng.choice((0, 20)),
            enable_idempotence=rng.random() < 0.7,
            compression_type=rng.choice(("none", "lz4", "zstd")),
            **_IMPATIENT,
        )
        self._producers.append(producer)
        self._start(producer.run)

    def _start_group(self) -> None:
        rng, topic = self._rng, self._tps[0].topic
        cooperates = rng.random() < 0.5
        for number in range(2):
            settings: dict[str, Any] = dict(_GROUP)
            if cooperates:
                settings["partition_assignment_strategy"] = _COOPERATIVE
            if rng.random() < 0.4:
                settings["group_instance_id"] = f"instance{number}"
            machine = self._machine(f"lm{number}")
            member = GroupProgram(machine, self._history, "library", topic, **settings)
            self._members.append(member)
            self._start(member.run)

    def _start_topic(self, topic: TopicProgram) -> None:
        rng = self._rng
        self._start(partial(topic.run, rng.choice((2.0, 5.0))))
        self._start(
            partial(topic.write, self._machine("tp0"), delivery_timeout_ms=20_000, **_IMPATIENT)
        )
        if rng.random() < 0.5:
            self._start(partial(topic.read, self._machine("tr0"), **_IMPATIENT))
        else:
            self._start(partial(topic.read, self._machine("tm0"), group="fleeting", **_GROUP))

    # -- the end --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let no more be written, and nothing be made again."""
        for producer in self._producers:
            producer.is_stopping = True
        for reader in self._readers:
            reader.is_stopping = True
        if self._topic is not None:
            self._topic.is_stopping = True
        self._commits = self._commit_count()

    def _commit_count(self) -> int:
        return sum(member.commit_count for member in self._members)

    def unwritten(self) -> str:
        """Tell of a producer that does not know all yet; "" when all do."""
        return "; ".join(filter(None, (producer.describe() for producer in self._producers)))

    def unread(self) -> str:
        """Tell of what is not read or committed yet; "" when all is."""
        for reader in self._readers:
            for tp in self._tps:
                end = self._end_of(tp)
                if end < 0 or (end and reader.positions.get(tp, 0) < end):
                    return f"the reader is at {reader.positions.get(tp, 0)} of {end} of {tp}"
        if self._members and self._commit_count() == self._commits:
            return "no member of the group commits"
        return "" if self._topic is None else self._topic.describe()
