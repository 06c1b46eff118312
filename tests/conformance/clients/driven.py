"""Clients in other languages, behind a small program per client that speaks lines of JSON.

The program has two ways to run. `PROGRAM serve ADDRESS` reads a request per line, {"call": NAME,
"with": ARGUMENTS}, and prints a reply per line: {"result": ...}, {"code": N, "text": ...} for an
error of Kafka's, {"failure": TEXT} for any other. `PROGRAM member ADDRESS TOPIC GROUP NAME
SESSION_TIMEOUT_MS HEARTBEAT_INTERVAL_MS` is a member of a group, see ProcessMember. So the programs
hold nothing but calls of their library; the expected results are in Python.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from tests.conformance.clients.members import DEADLINE_S, LineReader, ProcessMember, row_of
from tests.conformance.clients.records import Abilities, Record
from tests.conformance.clients.scenarios import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    ClientError,
)


class Driver:
    """The serving program: one request at a time."""

    def __init__(self, command: Sequence[str], address: str) -> None:
        self.command = list(command)
        self.address = address
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*command, "serve", address], stdin=pipe, stdout=pipe, stderr=pipe
        )
        self._output = LineReader(self._process)
        self._lock = threading.Lock()

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Have the program make one call of its library and return the result."""
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"call": name, "with": arguments}).encode())
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
            reply = self._output.next_line(DEADLINE_S)
        assert reply is not None, f"no reply to {name}\n{self._output.noise()}"
        found = json.loads(reply)
        if "code" in found:
            raise ClientError(found["code"])
        assert "result" in found, f"{name}: {found}\n{self._output.noise()}"
        return found["result"]

    def close(self) -> None:
        """End the program: it ends by itself when its input does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._output.close()
        assert code == 0, f"exit code {code}\n{self._output.noise()}"


class DrivenClient:
    """The client of the scenarios."""

    def __init__(
        self,
        driver: Driver,
        *,
        codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd"),
        can: Abilities | None = None,
        commits_at_rebalance: bool = True,
    ) -> None:
        self.driver = driver
        self.codecs = codecs
        self.can = can or Abilities()
        self.commits_at_rebalance = commits_at_rebalance
        self.commits_at_leave = False

    def create_topic(self, topic: str, partitions: int) -> None:
        self.driver.call("create_topic", topic=topic, partitions=partitions, configs={})

    def produce(
        self, topic: str, codec: str, records: Sequence[Record]
    ) -> list[tuple[int, int]] | None:
        rows = [row_of(record) for record in records]
        places = self.driver.call("produce", topic=topic, codec=codec, records=rows)
        return places and [(partition, offset) for partition, offset in places]

    def member(self, topic: str, group: str, name: str) -> ProcessMember:
        settings = [str(SESSION_TIMEOUT_MS), str(HEARTBEAT_INTERVAL_MS)]
        where = [self.driver.address, topic, group, name.replace(" ", "-")]
        return ProcessMember(name, [*self.driver.command, "member", *where, *settings])


class DrivenAdmin:
    """The admin of the scenarios."""

    def __init__(self, driver: Driver) -> None:
        self.call = driver.call

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self.call("create_topic", topic=topic, partitions=partitions, configs=configs)

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        described = self.call("partitions", topic=topic)
        return {index: (leader, replicas, isr) for index, leader, replicas, isr in described}

    def topics(self) -> list[str]:
        return list(self.call("topics"))

    def add_partitions(self, topic: str, total: int) -> None:
        self.call("add_partitions", topic=topic, total=total)

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.call("configs", topic=topic))

    def set_config(self, topic: str, name: str, value: str) -> None:
        self.call("set_config", topic=topic, name=name, value=value)

    def groups(self) -> list[str]:
        return list(self.call("groups"))

    def group(self, group: str) -> tuple[str, int]:
        state, members = self.call("group", group=group)
        return state, members

    def delete_group(self, group: str) -> None:
        self.call("delete_group", group=group)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return dict(self.call("committed", group=group, topic=topic))

    def offsets(self, topic: str, at: int) -> dict[int, int]:
        return dict(self.call("offsets", topic=topic, at=at))

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        return dict(self.call("delete_records", topic=topic, before=list(before.items())))
