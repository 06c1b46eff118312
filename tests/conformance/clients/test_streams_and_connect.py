"""Kafka Streams and Connect as they are, exactly once, killed in the middle of their work.

A word count prints every single count to its target, so that each word's counts must be 1, 2, 3 and
so on; a source connector reads a file, each of whose lines must come once.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from tests.conformance.broker_process import free_port_pair
from tests.conformance.cases.calls import append, create_topic
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    committed,
    committed_records,
    wait_for_transactions,
)
from tests.conformance.clients import scenarios
from tests.conformance.clients.streams_programs import WORD_COUNT, running, wait_for

pytestmark = scenarios.MARKS

Names = Callable[[], str]


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    """A connection by which the test looks at the results."""
    with RawClient(bootstrap) as made:
        wait_for_transactions(made)
        yield made


@dataclass
class Counts:
    """The counts of each word in a topic, in the order in which they were committed."""

    topic: str
    by_word: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    _end: int = 0

    def read_on(self, raw: RawClient) -> Self:
        """Read what has come since the last call, which is cheap enough to be repeated."""
        for record in committed_records(raw, self.topic, offset=self._end):
            assert record.key is not None
            assert record.value is not None
            self.by_word[record.key].append(int(record.value))
            self._end = record.offset + 1
        return self

    @property
    def total(self) -> int:
        """How many have been read."""
        return sum(map(len, self.by_word.values()))


def test_word_count(
    bootstrap: str, raw: RawClient, unique_topic: Names, unique_group: Names, tmp_path: Path
) -> None:
    """Killed between two commits, it goes on from the last: no count twice, none missing."""
    source, target = (create_topic(raw, unique_topic()) for _ in range(2))
    application, log = unique_group(), tmp_path / "streams.log"
    program = [WORD_COUNT.stem, bootstrap, application, source, target]
    counts = Counts(target)
    # One that comes back after a crash need not wait for its own session to end.
    settings = ["group.instance.id=counter"]
    line = b"to be or not to be"
    words = Counter(line.split())
    append(raw, source, *[line] * 200)
    with running(log, *program, str(tmp_path / "state"), *settings) as process:
        wait_for(process, log, lambda: len(counts.read_on(raw).by_word[b"be"]) >= 100)
        append(raw, source, *[line] * 2000)
        process.kill()
    with running(log, *program, str(tmp_path / "state"), *settings) as process:
        total = 2200 * words.total()
        wait_for(process, log, lambda: counts.read_on(raw).total >= total)
    expected = {word: list(range(1, 2200 * n + 1)) for word, n in words.items()}
    assert Counts(target).read_on(raw).by_word == expected


WORKER = """
bootstrap.servers={address}
group.id={name}
exactly.once.source.support=enabled
offset.flush.interval.ms=100
scheduled.rebalance.max.delay.ms=0
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.topic={name}-offsets
offset.storage.replication.factor=1
offset.storage.partitions=1
config.storage.topic={name}-configs
config.storage.replication.factor=1
status.storage.topic={name}-status
status.storage.replication.factor=1
status.storage.partitions=1
session.timeout.ms=6000
heartbeat.interval.ms=500
"""


def put(url: str, body: dict[str, str]) -> bool:
    """Ask the worker's REST interface; False while it does not take it yet."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="PUT"
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status) in (200, 201)
    except urllib.error.HTTPError as error:
        assert error.code in (404, 409, 500, 503), error.read()
        return False
    except OSError:
        return False


def test_source_connector(
    bootstrap: str, raw: RawClient, unique_topic: Names, unique_group: Names, tmp_path: Path
) -> None:
    """Its records and the position in the file that they come from are committed together."""
    target, name, log = create_topic(raw, unique_topic()), unique_group()[:40], tmp_path / "log"
    lines, port = tmp_path / "lines", free_port_pair()
    wanted = [b"line %d" % number for number in range(1500)]
    lines.write_bytes(b"".join(line + b"\n" for line in wanted[:500]))
    worker = tmp_path / "worker.properties"
    worker.write_text(WORKER.format(address=bootstrap, name=name, port=port))
    command = ["org.apache.kafka.connect.cli.ConnectDistributed", str(worker)]
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(lines),
        "topic": target,
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }
    with running(log, *command) as process:
        url = f"http://127.0.0.1:{port}/connectors/lines/config"
        wait_for(process, log, lambda: put(url, connector))
        wait_for(process, log, lambda: len(committed(raw, target)) >= 100)
        with lines.open("ab", buffering=0) as file:
            for line in wanted[500:]:
                file.write(line + b"\n")
        process.kill()
    with running(log, *command) as process:
        wait_for(process, log, lambda: len(committed(raw, target)) >= len(wanted))
    assert committed(raw, target) == wanted
