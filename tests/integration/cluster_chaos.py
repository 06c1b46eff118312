"""Faults of a cluster drawn at random, and a group of consumers that notes what it is promised.

Every draw comes from one generator, so that a seed gives the same plan again, if not the same
timing. A round is one fault: a node killed or stopped, or links among nodes cut or frozen; who is
hit is a leader, the active controller or anybody. It ends when the fault is over and, mostly, all
loads have got acknowledgements again; the replicas need not be in sync before the next.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.clients.install import python_client
from tests.conformance.cluster_load import Acknowledged, log, wait_for_more
from tests.conformance.cluster_process import Cluster
from tests.integration.cluster_links import Links

FAULTS = ("kill", "kill", "kill two", "kill while starting", "pause", "pause", "pause two",
          "cut link", "freeze link", "cut off", "freeze off", "one way", "kill all",
          "freeze link and kill")  # fmt: skip
OVERLAP = 0.2  # the share of faults that follow before anybody could go on


class Chaos:
    """Draws and carries out faults."""

    def __init__(
        self, cluster: Cluster, links: Links, rng: random.Random, topic: str, partitions: int
    ) -> None:
        self.cluster = cluster
        self.links = links
        self.rng = rng
        self.topic = topic
        self.partitions = partitions
        self.history: list[str] = []
        self._begin = time.monotonic()

    def round(self, fault: str, loads: list[Acknowledged]) -> None:
        """Have one fault come and go, and wait until the loads go on."""
        node_id = self.victim()
        other = self.rng.choice(self.cluster.others(node_id))
        hold_s = self.rng.choice((self.rng.uniform(0, 1), self.rng.uniform(0, 6)))
        self.note(f"{fault} node={node_id} other={other} for {hold_s:.1f} s")
        match fault:
            case "kill":
                self.kill(node_id)
                time.sleep(hold_s)
            case "kill two":
                self.kill(node_id)
                time.sleep(self.rng.uniform(0, 1))
                self.kill(other)
                time.sleep(hold_s / 2)
            case "kill all":
                for one in self.cluster.nodes:
                    self.kill(one)
            case "kill while starting":
                self.kill(node_id)
                self.links.pick_up(node_id)
                self.cluster.node(node_id).launch()
                time.sleep(self.rng.uniform(0.1, 1.5))
                self.kill(node_id)
            case "pause" | "pause two":
                self.cluster.node(node_id).pause()
                if fault == "pause two":
                    self.cluster.node(other).pause()
                time.sleep(hold_s)
            case "freeze link and kill":
                self.break_links(fault, node_id, other)
                time.sleep(hold_s / 2)
                self.kill(self.rng.choice((node_id, other)))
                time.sleep(hold_s / 2)
            case _:
                self.break_links(fault, node_id, other)
                time.sleep(hold_s)
        self.end()
        if self.rng.random() > OVERLAP:
            wait_for_more(self.cluster, loads)
            self.note("loads go on")

    def victim(self) -> int:
        """Choose a leader, the active controller, or anybody."""
        kind = self.rng.choice(("leader", "controller", "anybody"))
        if kind == "leader":
            return self.cluster.leader(self.topic, self.rng.randrange(self.partitions))
        if kind == "controller":
            return self.cluster.controller()
        return self.rng.choice(list(self.cluster.nodes))

    def break_links(self, fault: str, node_id: int, other: int) -> None:
        """Cut or freeze the links of a node: with one other, with all, or in one direction."""
        others = [other] if "link" in fault else self.cluster.others(node_id)
        broken = [(node_id, one) for one in others]
        if fault != "one way":
            broken += [(one, node_id) for one in others]
        elif self.rng.random() < 0.5:
            broken = [(one, node_id) for one in others]
        change = self.links.freeze if "freeze" in fault else self.links.cut
        for source, target in broken:
            change(source, target)

    def kill(self, node_id: int) -> None:
        """kill -9."""
        if self.cluster.node(node_id).process is not None:
            self.links.hang_up(node_id)
            self.cluster.node(node_id).kill9()

    def end(self) -> None:
        """Mend, resume and start whatever is not as it should be."""
        self.links.mend()
        for node_id, node in self.cluster.nodes.items():
            if node.process is None:
                self.links.pick_up(node_id)
                node.launch()
                self.note(f"start node={node_id}")
            elif node.is_paused:
                node.resume()
            code = node.process.poll() if node.process is not None else None
            assert code is None, f"node {node_id} ended with {code}\n{node.log_tail()}"

    def wait_ready(self) -> None:
        """Take the ready lines of what was started, and wait until all is well."""
        self.cluster.wait_healthy()

    def note(self, event: str) -> None:
        """Write down what happens, for the report of a failure."""
        line = f"{time.monotonic() - self._begin:7.2f} {event}"
        self.history.append(line)
        print(line, flush=True)


@dataclass
class GroupNotes:
    """What the members of a group have read, and which commits were acknowledged to them."""

    read: set[tuple[int, int]] = field(default_factory=set)
    committed: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    assignments: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class GroupReader(threading.Thread):
    """One member: reads on from what is committed, which never lies before what was promised."""

    def __init__(self, name: str, address: str, topic: str, group: str, notes: GroupNotes) -> None:
        super().__init__(name=name, daemon=True)
        self.notes = notes
        self.stopping = threading.Event()
        self.library = python_client("confluent_kafka")
        self._topic = topic
        self._consumer: Any = self.library.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "client.id": name,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "socket.timeout.ms": 3000,
                "reconnect.backoff.max.ms": 500,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "partition.assignment.strategy": "cooperative-sticky",
                "logger": log,
            }
        )

    def run(self) -> None:
        """Read and commit until it shall stop."""
        try:
            self._consumer.subscribe([self._topic], on_assign=self._assigned)
            committed_at = time.monotonic()
            while not self.stopping.is_set():
                for message in self._consumer.consume(500, 0.1):
                    self._take(message)
                if time.monotonic() - committed_at > 0.3:
                    self._commit()
                    committed_at = time.monotonic()
            self._consumer.close()
        except Exception as error:
            self.notes.faults.append(f"{self.name}: {error!r}")

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            with self.notes.lock:
                self.notes.read.add((message.partition(), message.offset()))
        elif error.fatal() or error.code() == self.library.KafkaError._AUTO_OFFSET_RESET:
            self.notes.faults.append(f"{self.name}: {error}")

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        with self.notes.lock:
            promised = dict(self.notes.committed)
            self.notes.assignments += 1
        found = self._committed(partitions)
        for one in found:
            offset = max(one.offset, 0)
            if offset < promised.get(one.partition, 0):
                self.notes.faults.append(
                    f"{self.name}: partition {one.partition} is committed at {offset}, "
                    f"promised was {promised[one.partition]}"
                )
            one.offset = offset
        consumer.incremental_assign(found)

    def _committed(self, partitions: list[Any]) -> list[Any]:
        """Ask for the committed offsets until the coordinator returns them."""
        while True:
            try:
                found = list(self._consumer.committed(partitions, 5))
            except self.library.KafkaException:
                found = []
            if (found and all(one.error is None for one in found)) or not partitions:
                return found
            if self.stopping.is_set():
                return []
            time.sleep(0.1)

    def _commit(self) -> None:
        try:
            done = self._consumer.commit(asynchronous=False)
        except self.library.KafkaException:
            return  # nothing new, or the coordinator is on its way: the next one will do
        with self.notes.lock:
            for one in done or ():
                if one.error is None and one.offset >= 0:
                    before = self.notes.committed.get(one.partition, 0)
                    self.notes.committed[one.partition] = max(before, one.offset)
