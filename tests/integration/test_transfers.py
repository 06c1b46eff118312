"""Transfers between accounts in two topics, exactly once, whatever is killed, paused or cut off.

Orders are carried out by two tellers (`teller.py`), in transactions over three nodes. A
read_committed reader follows both topics all the time: it must never see an amount of an aborted
transaction, nor the same order twice. At the end every acknowledged order is there once in each
topic, and the sum over all accounts is zero. TRANSFER_ROUNDS=30 is the long run, FAULT_TEST_SEED
repeats one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.conformance.cases.calls import fetch, records_in
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import READ_COMMITTED
from tests.conformance.clients.install import python_client
from tests.conformance.cluster_load import Acknowledged, ConfluentLoad, log, wait_for_more
from tests.conformance.cluster_process import Cluster
from tests.conftest import ROOT
from tests.integration.cluster_chaos import Chaos
from tests.integration.cluster_links import Links
from tests.integration.teller import (
    CREDITS,
    DEBITS,
    FAILED,
    FENCED,
    ORDERS,
    PARTITIONS,
    WRONG,
    transfer,
)

ROUNDS = int(os.environ.get("TRANSFER_ROUNDS", "2"))
RATE = 50
TELLERS = ("teller-1", "teller-2")
DRAIN_S = 60.0
ZOMBIE_DEADLINE_S = 60.0
NODE_FAULTS = ("kill", "freeze link", "pause", "cut off", "kill while starting", "freeze off",
               "kill two", "one way", "kill all", "pause two")  # fmt: skip
TELLER_FAULTS = ("replace", "kill", "pause")


class Tellers:
    """The tellers' processes; one that ends is started again, as a supervisor would."""

    def __init__(self, address: str, folder: Path, rng: random.Random) -> None:
        self._address, self._folder, self._rng = address, folder, rng
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._tend, daemon=True)
        self.zombies: list[subprocess.Popen[bytes]] = []
        self.exits: list[int] = []

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.integration.teller", self._address, name]
        with (self._folder / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [*command, str(self._rng.random())], cwd=ROOT, stdout=output, stderr=output
            )

    def _tend(self) -> None:
        while not self._stopping.wait(0.1):
            with self._lock:
                for name, process in list(self._processes.items()):
                    code = process.poll()
                    if code is not None:
                        self.exits.append(code)
                        self._start(name)

    def kill(self, name: str) -> None:
        """kill -9; another one takes its place at once."""
        with self._lock:
            self._processes[name].kill()

    def replace(self, name: str) -> subprocess.Popen[bytes]:
        """Stop one in its tracks and start another with the same name; return the zombie."""
        with self._lock:
            zombie = self._processes[name]
            zombie.send_signal(signal.SIGSTOP)
            self.zombies.append(zombie)
            self._start(name)
        return zombie

    def pause(self, name: str) -> subprocess.Popen[bytes]:
        """Stop one in its tracks; none takes its place, and its transaction times out or not."""
        with self._lock:
            self._processes[name].send_signal(signal.SIGSTOP)
            return self._processes[name]

    def check_zombies(self) -> None:
        """Wait for those that were replaced to end.

        They learn by a heartbeat that they are fenced; or, if they had not joined the group yet
        when they were paused, and so took the place of their successor, by their next write.
        """
        for zombie in self.zombies:
            assert zombie.wait(ZOMBIE_DEADLINE_S) in (FENCED, FAILED), self.notes()

    def notes(self) -> str:
        """Return what the tellers said."""
        return "\n".join(
            (self._folder / f"{name}.log").read_text()[-1000:] for name in self._processes
        )

    def __enter__(self) -> Tellers:
        for name in TELLERS:
            self._start(name)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        for process in [*self._processes.values(), *self.zombies]:
            process.kill()
            process.wait()


class Auditor(threading.Thread):
    """A read_committed reader of both topics: what it has seen of each order."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, dict[int, int]] = {DEBITS: {}, CREDITS: {}}
        self.faults: list[str] = []
        self.stopping = threading.Event()
        library = python_client("confluent_kafka")
        settings = {
            "bootstrap.servers": address,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "socket.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 500,
            "fetch.wait.max.ms": 50,
            "logger": log,
        }
        self._consumer: Any = library.Consumer(settings)
        self._consumer.assign(
            [library.TopicPartition(topic, p, 0) for topic in self.seen for p in range(PARTITIONS)]
        )

    def run(self) -> None:
        """Read until it shall stop."""
        while not self.stopping.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self._take(message)
                elif not message.error().retriable():
                    self.faults.append(str(message.error()))
        self._consumer.close()

    def _take(self, message: Any) -> None:
        topic, place = message.topic(), f"{message.partition()}/{message.offset()}"
        order, amount = json.loads(message.value())
        expected = transfer(order)[2] * (-1 if topic == DEBITS else 1)
        if amount != expected:
            self.faults.append(f"{topic} {place}: order {order} has {amount}, not {expected}")
        if order in self.seen[topic]:
            self.faults.append(f"{topic} {place}: order {order} comes again")
        self.seen[topic][order] = amount


class Audited(Acknowledged):
    """The progress of the auditor, as that of a load."""

    def __init__(self, auditor: Auditor) -> None:
        super().__init__()
        self._auditor = auditor

    @property
    def count(self) -> int:
        """How many orders are carried out completely."""
        return min(map(len, self._auditor.seen.values()))


@pytest.fixture
def cluster_settings() -> dict[str, Any]:
    return {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 500}


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_every_transfer_once(cluster: Cluster, links: Links, tmp_path: Path) -> None:
    """Brokers and tellers are killed, paused and cut off; the accounts stay right."""
    seed = int(os.environ.get("FAULT_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
    print(f"FAULT_TEST_SEED={seed}")
    rng = random.Random(seed)
    with cluster.any_client() as client:
        for topic in (ORDERS, DEBITS, CREDITS):
            create_replicated(client, topic)
    cluster.wait_healthy(ORDERS, DEBITS, CREDITS)
    auditor = Auditor(cluster.bootstrap)
    auditor.start()
    loads: list[Acknowledged] = [Audited(auditor)]
    with (
        Tellers(cluster.bootstrap, tmp_path, rng) as tellers,
        ConfluentLoad(cluster.bootstrap, ORDERS, PARTITIONS, RATE) as orders,
    ):
        wait_for_more(cluster, loads, 50)
        chaos = Chaos(cluster, links, rng, DEBITS, PARTITIONS)
        for number in range(ROUNDS):
            fault = TELLER_FAULTS[number % len(TELLER_FAULTS)]
            stopped = disturb(tellers, fault, rng.choice(TELLERS), chaos)
            chaos.round(NODE_FAULTS[number % len(NODE_FAULTS)], loads)
            if stopped is not None:
                stopped.send_signal(signal.SIGCONT)
            assert not auditor.faults, auditor.faults[:5]
            assert not orders.fatal
        chaos.wait_ready()
        tellers.check_zombies()  # while there is work: some find out by their next transaction only
        orders.stop()
        wanted = range(orders.acknowledged.count)

        def carried_out() -> bool:
            return bool(auditor.faults) or loads[0].count >= len(wanted)

        cluster.wait_until(
            carried_out, f"{len(wanted)} orders carried out\n{tellers.notes()}", DRAIN_S
        )
    cluster.wait_until(lambda: is_stable(cluster), "no transaction is open", DRAIN_S)
    auditor.stopping.set()
    auditor.join(DRAIN_S)
    assert not auditor.faults, auditor.faults[:5]
    for topic in (DEBITS, CREDITS):
        assert sorted(auditor.seen[topic]) == list(wanted), topic
    assert sum(sum(amounts.values()) for amounts in auditor.seen.values()) == 0
    check_aborted(cluster)
    print(
        f"{len(wanted)} orders, {len(tellers.zombies)} tellers replaced, "
        f"exits of tellers {sorted(tellers.exits)}"
    )


def disturb(
    tellers: Tellers, fault: str, name: str, chaos: Chaos
) -> subprocess.Popen[bytes] | None:
    """Inject a fault into a teller; return the process that is to go on later."""
    chaos.note(f"{fault} {name}")
    if fault == "kill":
        tellers.kill(name)
        return None
    return tellers.replace(name) if fault == "replace" else tellers.pause(name)


def create_replicated(client: RawClient, topic: str) -> None:
    """Create a topic with a replica on each node."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=PARTITIONS,
                replication_factor=3,
                configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
            )
        ]
    )
    (result,) = client.call(request).topics
    assert result.error_code == ErrorCode.NONE, result


def check_aborted(cluster: Cluster) -> None:
    """Assert that read_uncommitted readers get the wrong amounts, and that Fetch lists them."""
    wrong, marked = 0, 0
    for partition in range(PARTITIONS):
        with cluster.node(cluster.leader(DEBITS, partition)).client() as client:
            answer = fetch(client, DEBITS, 0, partition, isolation_level=READ_COMMITTED)
        marked += len(answer.aborted_transactions or ())
        for record in records_in(answer.records):
            if record.value is not None and record.value.startswith(b"["):  # no marker
                wrong += json.loads(record.value)[1] < -WRONG
    assert wrong > 0
    assert marked > 0


def is_stable(cluster: Cluster) -> bool:
    """Return whether the last stable offset is the high watermark in every partition."""
    for topic in (DEBITS, CREDITS):
        for partition in range(PARTITIONS):
            with cluster.node(cluster.leader(topic, partition)).client() as client:
                answer = fetch(client, topic, 0, partition, isolation_level=READ_COMMITTED)
            if answer.last_stable_offset != answer.high_watermark:
                return False
    return True
