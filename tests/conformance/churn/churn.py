"""A group whose members come and go for a while, and what happened to its records: `run_churn`.

Members are processes of one client. While records are written all the time they join, leave, are
killed with SIGKILL, and paused (SIGSTOP) past their session; on a cluster coordinators are killed
as well. Static members are restarted instead, and paused for less than their session: they keep
what they have. Where the broker assigns, one more then joins and one leaves, and only what must
move moves. At the end the remaining members read and commit everything. `ChurnModel` judges.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path
from random import Random
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    DescribeGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.conformance.cases.raw_client import ConnectionClosed, RawClient
from tests.conformance.churn.model import ChurnModel
from tests.conformance.churn.our_member import OUR_CLIENTS
from tests.conformance.churn.python_member import CLIENTS, COMMIT_MS, HEARTBEAT_MS
from tests.conformance.clients.install import go_program, node_script, python_client
from tests.conformance.java_programs import java_program

DRAIN_S = 300.0
LEAVE_S = 120.0
STATIC_PAUSE_S = 6.0
_PROGRAM = Path(__file__).with_name("GroupMember.java")
DRIVEN: dict[str, Callable[[], list[str]]] = {
    "franz-go": lambda: [str(go_program("franz"))],
    "sarama": lambda: [str(go_program("sarama"))],
    "kafkajs": lambda: node_script("kafkajs_driver.mjs"),
}
# Clients that can be in one group, by what assigns there: each is in one of these.
MIXES = {
    "cooperative-sticky": ("confluent-classic", "franz-go", "java-classic", "ours-classic"),
    "range": ("aiokafka", "kafka-python", "sarama"),
    "kafkajs": ("kafkajs",),  # which has an assignor of its own
    "broker": ("confluent-consumer", "java-consumer", "ours-consumer"),
}
ALL_CLIENTS = tuple(chain.from_iterable(MIXES.values()))
STATIC_CLIENTS = tuple(one for one in ALL_CLIENTS if one != "kafkajs")  # which has no such members
# librdkafka sends unanswered commits again after later ones.
_RESEND_COMMITS = ("confluent-classic", "confluent-consumer")
# Drops all that it has when it cannot join again, as while its coordinator is dead. Nobody knows
# then what it had; two that do so at once may get each other's.
_DROP_ALL = ("franz-go",)
_CHANGES = ("left", "killed", "paused", "faults")
_STATIC_CHANGES = ("restarted", "killed", "paused", "faults")


def broker_settings(session_ms: int) -> dict[str, int]:
    """The brokers' settings for a run."""
    return {
        "group_initial_rebalance_delay_ms": 0,
        "group_min_session_timeout_ms": 1000,
        "group_consumer_min_session_timeout_ms": 1000,
        "group_consumer_session_timeout_ms": session_ms,
        "group_consumer_max_session_timeout_ms": max(session_ms, 60_000),
        "group_consumer_min_heartbeat_interval_ms": 100,
        "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
    }


@dataclass(frozen=True, slots=True)
class Plan:
    """One run.

    Attributes:
        clients: of the members, by turns: of `ALL_CLIENTS`.
        seconds: how long members come and go.
        interval_s: how long nothing happens between two changes, at most.
        fault: something that breaks the brokers, called now and then; None: nothing does.
        is_static: members have instance ids, and are restarted within their session.
    """

    clients: Sequence[str]
    bootstrap: str
    topic: str
    group: str
    partitions: int
    members: int
    seconds: float
    interval_s: float
    session_ms: int
    seed: int
    fault: Callable[[], None] | None = None
    is_static: bool = False

    @property
    def does_broker_assign(self) -> bool:
        """Whether the members speak the consumer protocol (KIP-848)."""
        return all(client.endswith("-consumer") for client in self.clients)


def command_of(plan: Plan, client: str, name: str) -> list[str]:
    """The command of a member."""
    where = [plan.bootstrap, plan.topic, plan.group, name, str(plan.session_ms)]
    instance = [name] if plan.is_static else []
    times = [str(HEARTBEAT_MS), str(COMMIT_MS)]
    if client in CLIENTS or client in OUR_CLIENTS:
        program = "python_member" if client in CLIENTS else "our_member"
        module = f"{__package__}.{program}"
        command = [sys.executable, "-m", module, client, *where, *instance]
    elif client in DRIVEN:
        command = [*DRIVEN[client](), "member", *where, *times, *instance]
    else:
        protocol = client.removeprefix("java-")
        command = [*java_program(_PROGRAM), protocol, *where, *instance]
    return ["nice", "-n", "5", *command]


class Member:
    """One process, and the thread that reads its output."""

    def __init__(
        self, client: str, name: str, command: list[str], model: ChurnModel, log: Path
    ) -> None:
        self.client = client
        self.name = name
        self._model = model
        self._log = log.open("ab")
        self.log_path = log
        self.is_leaving = False  # what it is given meanwhile it does not keep
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                return  # it was killed while it wrote
            event = json.loads(line)
            if "assigned" in event and not self.is_leaving:
                self._model.assign(self.name, event["assigned"], event["at"])
            elif "records" in event:
                self._model.read([(place[0], place[1]) for place in event["records"]])

    def ask_to_leave(self) -> None:
        assert self.process.stdin is not None
        self.is_leaving = True
        self._model.lose(self.name, time.time() * 1000)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(b"leave\n")
            self.process.stdin.close()

    def kill9(self) -> None:
        self.process.kill()
        self.end(-signal.SIGKILL)
        self._model.lose(self.name, time.time() * 1000)

    def end(self, code: int = 0) -> None:
        """Wait for its end, which must be this one."""
        found = self.process.wait(LEAVE_S)
        self._thread.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self._log.close()
        noise = self.log_path.read_text(errors="replace")[-1500:]
        assert found == code, f"{self.name} ended with {found}\n{noise}"


class Churn:
    """See the module; one run."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._rng = Random(plan.seed)
        changes = _STATIC_CHANGES if plan.is_static else _CHANGES
        self._changes = cycle(self._rng.sample(changes, len(changes)))
        self._members: list[Member] = []
        self._leaving: list[Member] = []
        self._names = 0
        self._failures: list[BaseException] = []
        self.model = ChurnModel()
        self.ends: dict[int, int] = dict.fromkeys(range(plan.partitions), 0)
        self.counts = dict.fromkeys(("joined", *changes), 0)
        self._moved: list[str] = []  # without need

    def run(self) -> list[str]:
        """Do all of it; return the faults that the model found."""
        stop = threading.Event()
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_all)
            stack.callback(self._write_history)
            watcher = stack.enter_context(self._beside(self._watch_commits))
            writer = stack.enter_context(self._beside(self._write))
            for _ in range(self._plan.members):
                self._join()
            self._wait_settled()
            moves = self._unexplained_moves()
            end_s = time.monotonic() + self._plan.seconds
            while time.monotonic() < end_s and not self._failures:
                stop.wait(self._rng.uniform(0.2, 1) * self._plan.interval_s)
                self._change()
            if self._plan.is_static:
                self._wait_settled()
                self._note_moves("members were restarted", self._unexplained_moves() - moves, 0)
            if self._plan.does_broker_assign:
                self._join_and_leave()
            writer.set()
            self._wait_until(
                lambda: not self.model.behind(self.ends),
                "all is committed",
                lambda: self.model.describe_behind(self.ends),
            )
            for member in self._members:
                member.ask_to_leave()
            for member in [*self._leaving, *self._members]:
                member.end()
            watcher.set()
        assert not self._failures, self._failures
        resends = not set(self._plan.clients).isdisjoint(_RESEND_COMMITS)
        may_go_back = self.counts["faults"] > 0 and resends
        return [*self._moved, *self.model.errors(self.ends, may_go_back=may_go_back)]

    def hand_over(self) -> list[str]:
        """Let all join, and each that has all leave, until none is left; return their clients."""
        owners: list[str] = []
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_all)
            client = stack.enter_context(RawClient(self._plan.bootstrap))
            for _ in range(self._plan.members):
                self._join()
            while self._members:
                self._wait_until(
                    lambda: self._members_joined(client) == len(self._members), "all have joined"
                )
                self._wait_settled()
                (name,) = set(self.model.held().values())
                (owner,) = [member for member in self._members if member.name == name]
                owners.append(owner.client)
                self._leave(owner)
                owner.end()
        return owners

    def _members_joined(self, client: RawClient) -> int:
        """How many members the group has; all of them know their assignment."""
        request = DescribeGroupsRequest(groups=[self._plan.group])
        (group,) = client.call(request, 5).groups
        return len(group.members) if group.group_state == "Stable" else 0

    def _write_history(self) -> None:
        """Keep the record of the run, also of one that failed, beside the members' logs."""
        (self._folder / "history.txt").write_text("\n".join(self.model.history()))

    def _wait_until(
        self, condition: Callable[[], bool], wanted: str, found: Callable[[], str] = str
    ) -> None:
        end_s = time.monotonic() + DRAIN_S
        while not condition():
            assert not self._failures, self._failures
            assert time.monotonic() < end_s, f"not in {DRAIN_S:g} s: {wanted} {found()}"
            time.sleep(0.1)

    def _wait_settled(self) -> None:
        """Wait until each partition has an owner, and each member about as many as any other."""

        def counts() -> list[int]:
            owned = Counter(self.model.held().values())
            return [owned[member.name] for member in self._members]

        def is_settled() -> bool:
            found = counts()
            return sum(found) == self._plan.partitions and max(found) - min(found) <= 1

        self._wait_until(
            is_settled, "all partitions are shared by all members", lambda: str(counts())
        )

    @contextlib.contextmanager
    def _beside(self, work: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
        """Do something in a thread until its event is set; its failure is that of the run."""
        stop = threading.Event()

        def main() -> None:
            try:
                work(stop)
            except BaseException as failure:  # the thread's end: the run must get it
                self._failures.append(failure)

        thread = threading.Thread(target=main, daemon=True)
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join()

    # -- members ----------------------------------------------------------------------------------

    def _join(self) -> None:
        """Start a member, of the client that has the fewest there."""
        there = Counter(member.client for member in self._members)
        self._start(min(self._plan.clients, key=lambda one: there[one]), f"m{self._names}")
        self._names += 1

    def _start(self, client: str, name: str) -> None:
        command = command_of(self._plan, client, name)
        log = self._folder / f"{name}.log"
        self._members.append(Member(client, name, command, self.model, log))
        self.counts["joined"] += 1

    def _change(self) -> None:
        """Do something to the group, chosen at random."""
        for member in self._members:
            assert member.process.poll() is None, (
                f"{member.name} ended\n{member.log_path.read_text(errors='replace')[-1500:]}"
            )
        if len(self._members) < self._plan.members and self._rng.random() < 0.7:
            self._join()
            return
        victim = self._rng.choice(self._members)
        what = next(self._changes)
        if what == "killed" and self._plan.is_static and self._plan.does_broker_assign:
            what = "restarted"  # a dead member holds its instance id until its session ends
        if what == "faults":
            if self._plan.fault is None:
                return
            if self._plan.is_static and self._plan.does_broker_assign:
                # One whose join was not answered cannot join again: it holds its own instance id.
                self._wait_settled()
            self._plan.fault()
        elif what == "paused":
            self._pause(victim)
        elif self._plan.is_static:
            self._restart(victim, is_killed=what == "killed")
        elif what == "left":
            self._leave(victim)
        else:
            self._members.remove(victim)
            victim.kill9()
        self.counts[what] += 1

    def _leave(self, member: Member) -> None:
        self._members.remove(member)
        self._leaving.append(member)
        member.ask_to_leave()

    def _pause(self, member: Member) -> None:
        """Pause a member for longer than its session, a static one for less."""
        os.kill(member.process.pid, signal.SIGSTOP)
        if not self._plan.is_static:
            self.model.lose(member.name, time.time() * 1000)
        time.sleep(STATIC_PAUSE_S if self._plan.is_static else 1.4 * self._plan.session_ms / 1000)
        if not self._plan.is_static:
            self.model.wake(member.name, time.time() * 1000)
        os.kill(member.process.pid, signal.SIGCONT)

    def _restart(self, member: Member, *, is_killed: bool) -> None:
        """End a member and start it again."""
        self._members.remove(member)
        if is_killed:
            member.kill9()
        else:
            member.ask_to_leave()
            member.end()
        self._start(member.client, member.name)

    def _join_and_leave(self) -> None:
        """One more joins, and one leaves: only what must move moves.

        A static member does not leave: its partitions would wait for it until its session is over.
        """
        while len(self._members) < self._plan.members:
            self._join()
        self._wait_settled()
        moves = self.model.moves
        self._join()
        self._wait_settled()
        needed = self._plan.partitions // len(self._members)
        self._note_moves("a member joined", self.model.moves - moves, needed)
        if self._plan.is_static:
            return
        moves = self.model.moves
        victim = self._rng.choice(self._members)
        needed = Counter(self.model.held().values())[victim.name]
        self._leave(victim)
        self._wait_settled()
        self._note_moves("a member left", self.model.moves - moves, needed)

    def _unexplained_moves(self) -> int:
        """How often a partition moved, but for what a client brings about by itself."""
        drops_all = not set(self._plan.clients).isdisjoint(_DROP_ALL)
        return self.model.moves - (self.model.moves_among_droppers() if drops_all else 0)

    def _note_moves(self, what: str, moves: int, needed: int) -> None:
        if moves != needed:
            self._moved.append(f"{what}: {moves} partitions moved, not {needed}")

    def _end_all(self) -> None:
        for member in [*self._members, *self._leaving]:
            if member.process.poll() is None:
                member.process.kill()

    # -- records ----------------------------------------------------------------------------------

    def _write(self, stop: threading.Event) -> None:
        plan = self._plan
        library = python_client("confluent_kafka")
        producer = library.Producer(
            {"bootstrap.servers": plan.bootstrap, "enable.idempotence": True, "linger.ms": 10}
        )

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            end = self.ends[message.partition()]
            self.ends[message.partition()] = max(end, message.offset() + 1)

        number = 0
        while not stop.wait(0.05):
            for _ in range(20):
                producer.produce(
                    plan.topic,
                    b"%d" % number,
                    partition=number % plan.partitions,
                    on_delivery=delivered,
                )
                number += 1
            producer.poll(0)
        assert producer.flush(DRAIN_S) == 0

    def _watch_commits(self, stop: threading.Event) -> None:
        """Ask again and again what is committed."""
        addresses = self._plan.bootstrap.split(",")
        asked = OffsetFetchRequestGroup(group_id=self._plan.group, topics=None)
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        while not stop.is_set():
            for address in addresses:
                with contextlib.suppress(OSError, ConnectionClosed), RawClient(address) as client:
                    while not stop.wait(0.1):
                        (group,) = client.call(request, 9, timeout_s=10.0).groups
                        if group.error_code != ErrorCode.NONE:
                            break  # another one coordinates it
                        self.model.commit(
                            {
                                one.partition_index: one.committed_offset
                                for topic in group.topics
                                for one in topic.partitions
                            }
                        )
