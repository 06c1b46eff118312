"""Measures this broker and Apache Kafka in the same run, with Apache's own perf tools.

Both brokers run one after the other in each round, or by turns of a second or less where figures
are close (groups): a machine is not as fast in one minute as in the next. They run on fresh data,
with default settings but for the listener and replication factor 1 of the internal topics. The
tools run beside the broker, so on a small machine the client takes its share of the processors:
ratios say more than single figures.

What is measured
- start: from the start of the process to the first answered ApiVersions request
- memory: resident set two seconds after the start, and after the whole run
- produce, consume: records per second as the tool reports them
- broker CPU: seconds of processor time of the broker per GB of records
- latency: end to end through `kafka-e2e-latency`, median and 99th percentile

MODES names what else is measured, each by an option and in a module of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeAlias

import apache_kafka
from rich.console import Console
from rich.table import Table

PERF_FLAGS = ("-Xmx1G", "-XX:+UseSerialGC", "-Xshare:auto")
START_DEADLINE_S = 60.0
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@dataclass(frozen=True)
class Workload:
    """One produce run and the consume run of the same topic."""

    name: str
    records: int
    record_bytes: int
    properties: tuple[str, ...]


WORKLOADS = (
    Workload("100 B acks=1", 1_000_000, 100, ("acks=1", "linger.ms=5", "batch.size=65536")),
    Workload("1 KB acks=all", 500_000, 1000, ("acks=all", "linger.ms=5", "batch.size=65536")),
    Workload("1 KB defaults", 500_000, 1000, ()),
)
LATENCY_MESSAGES = 5000


class Metrics:
    """Figures of one broker by name, one value per round."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def median(self, name: str) -> float | None:
        values = self.values.get(name)
        return statistics.median(values) if values else None


@dataclass
class RunningBroker:
    """A broker process to be measured."""

    process: subprocess.Popen[bytes]
    address: str
    directory: Path

    def cpu_s(self) -> float:
        """Processor seconds used so far."""
        return cpu_s(self.process.pid)

    def memory_mb(self) -> float:
        """Resident set in MB."""
        return memory_mb(self.process.pid)


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used so far, in user and kernel mode."""
    return time.clock_gettime(~pid << 3 | 2)  # the clock that clock_getcpuclockid(3) names


def memory_mb(pid: int) -> float:
    """Resident set of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found, "the process is gone"
    return int(found.group(1)) / 1024


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
        try:
            for offset in range(1, count):
                with socket.socket() as other:
                    other.bind(("127.0.0.1", port + offset))
        except OSError:
            continue
        return port


def answers(port: int) -> bool:
    """Does the broker answer an ApiVersions request?"""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.sendall(_API_VERSIONS)
            return len(sock.recv(4)) == 4
    except OSError:
        return False


def command_of(kind: str, directory: Path, port: int, settings: Sequence[str] = ()) -> list[str]:
    """How to start a broker on fresh data, with some settings of its own.

    In settings `{port}` stands for its port, and `{controller}` for that of Apache's controller.
    """
    chosen = [
        one.replace("{port}", str(port)).replace("{controller}", str(port + 1))
        for one in ("group.initial.rebalance.delay.ms=0", *settings)
    ]
    if kind == "apache":
        return apache_kafka.broker_command(directory, port, chosen)
    return [
        *(sys.executable, "-P", "-m", "kraftrio", "start"),
        *("--data", str(directory / "data"), "--set", f"listeners=PLAINTEXT://127.0.0.1:{port}"),
        *(word for setting in chosen for word in ("--set", setting)),
    ]


@contextmanager
def running(kind: str, metrics: Metrics, settings: Sequence[str] = ()) -> Iterator[RunningBroker]:
    """Start a broker, note how long that took and what it weighs, and stop it at the end."""
    directory = Path(tempfile.mkdtemp(prefix=f"bench-{kind}-"))
    port = free_ports(2)
    command = command_of(kind, directory, port, settings)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        while not answers(port):
            if process.poll() is not None or time.perf_counter() - started > START_DEADLINE_S:
                raise SystemExit(f"{kind} did not start:\n{(directory / 'log').read_text()}")
            time.sleep(0.005)
        metrics.add("start, s", time.perf_counter() - started)
        broker = RunningBroker(process, f"127.0.0.1:{port}", directory)
        time.sleep(2)
        metrics.add("memory idle, MB", broker.memory_mb())
        yield broker
        metrics.add("memory after, MB", broker.memory_mb())
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def tool(name: str, *arguments: str) -> str:
    """Run one of Apache's tools and return what it printed."""
    command = [*apache_kafka.java_command(flags=PERF_FLAGS), apache_kafka.TOOLS[name], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


class Measurable(Protocol):
    """What is measured while the tools run: one broker, or all of a cluster."""

    address: str

    def cpu_s(self) -> float: ...

    def memory_mb(self) -> float: ...


def measure_workload(
    broker: Measurable,
    workload: Workload,
    number: int,
    scale: float,
    metrics: Metrics,
    partitions: int = 1,
) -> None:
    """Produce and consume one topic."""
    topic = f"bench-{number}"
    address = ("--bootstrap-server", broker.address)
    create = ("--create", "--topic", topic, "--partitions", str(partitions))
    tool("kafka-topics", *address, *create)
    records = int(workload.records * scale)
    gigabytes = records * workload.record_bytes / 1e9
    properties = [f"bootstrap.servers={broker.address}", *workload.properties]
    cpu_before = broker.cpu_s()
    output = tool(
        *("kafka-producer-perf-test", "--topic", topic, "--num-records", str(records)),
        *("--record-size", str(workload.record_bytes), "--throughput", "-1"),
        *("--producer-props", *properties),
    )
    cpu_s = broker.cpu_s() - cpu_before
    metrics.add(f"produce {workload.name}, records/s", last_rate(output))
    metrics.add(f"produce {workload.name}, broker CPU s/GB", cpu_s / gigabytes)
    rate, cpu_s = consume(broker, topic, records)
    metrics.add(f"consume {workload.name}, records/s", rate)
    metrics.add(f"consume {workload.name}, broker CPU s/GB", cpu_s / gigabytes)


def last_rate(output: str) -> float:
    """The records per second of the last line in which kafka-producer-perf-test prints any."""
    return float(re.findall(r"([\d.]+) records/sec", output)[-1])


def consume(broker: Measurable, topic: str, records: int, *options: str) -> tuple[float, float]:
    """Read a topic from its beginning: records a second, and processor seconds of the broker."""
    cpu_before = broker.cpu_s()
    output = tool(
        *("kafka-consumer-perf-test", "--bootstrap-server", broker.address, "--topic", topic),
        *("--num-records", str(records), "--timeout", "60000", *options),
    )
    cpu_s = broker.cpu_s() - cpu_before
    header, values = (line.split(", ") for line in output.strip().splitlines()[:2])
    by_name = dict(zip((name.strip() for name in header), values, strict=True))
    return float(by_name["fetch.nMsg.sec"]), cpu_s


def measure_latency(broker: RunningBroker, messages: int, metrics: Metrics) -> None:
    """Send one record at a time and wait for it to come back."""
    output = tool(
        *("kafka-e2e-latency", "--bootstrap-server", broker.address, "--topic", "bench-latency"),
        *("--num-records", str(messages), "--producer-acks", "1", "--record-size", "100"),
    )
    found = re.search(r"Percentiles: 50th = (\d+), 99th = (\d+)", output)
    average = re.search(r"Avg latency: ([\d.]+) ms", output)
    assert found and average, output
    metrics.add("latency average, ms", float(average.group(1)))
    metrics.add("latency p50, ms", float(found.group(1)))
    metrics.add("latency p99, ms", float(found.group(2)))


def measure(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one broker."""
    with running(kind, metrics) as broker:
        for number, workload in enumerate(WORKLOADS):
            measure_workload(broker, workload, number, scale, metrics)
        measure_latency(broker, int(LATENCY_MESSAGES * scale), metrics)


def shown(value: float | None) -> str:
    """A figure with three digits, or all of them from 1,000 on."""
    if value is None:
        return "-"
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def show(results: dict[str, Metrics], rounds: int) -> None:
    """Print the medians of both brokers and their ratio."""
    table = Table(title=f"medians of {rounds} round(s), Python {platform.python_version()}")
    table.add_column("")
    for kind in results:
        table.add_column(kind, justify="right")
    if len(results) == 2:
        table.add_column("ratio", justify="right")
    names = next(iter(results.values())).values
    for name in names:
        medians = [metrics.median(name) for metrics in results.values()]
        row = [shown(value) for value in medians]
        if len(medians) == 2 and medians[0] is not None and medians[1]:
            row.append(f"{medians[0] / medians[1]:.2f}x")
        table.add_row(name, *row)
    Console(width=100).print(table)


# What is measured, by option: who does it, and what it is.
MODES = {
    "cluster": ("bench_cluster:measure_throughput", "three nodes, every record on all"),
    "failover": ("bench_cluster:measure_failover", "kill -9 of leader and controller"),
    "many-topics": ("bench_cluster:measure_many_topics", "1,000 topics x 3 x 3 replicas"),
    "reads": ("bench_reads:measure_reads", "a log in memory, and from the disk"),
    "requests": ("bench_requests:measure_requests", "what one small request costs"),
    "acls": ("bench_acls:measure_acls", "requests under 10,000 ACLs"),
    "metrics": ("bench_metrics:measure_metrics", "looked at by metrics and console, and not"),
    "transactions": ("bench_transactions:measure_transactions", "commit by commit, and many"),
    "groups": ("bench_groups:measure_groups", "5,000 members of each protocol"),
    "crowd": ("bench_crowd:measure_crowd", "beside slow and hostile clients"),
    "pipe": ("bench_pipe:measure_pipe", "lines through kraftrio and kcat"),
    "logins": ("bench_logins:measure_logins", "clients that log in by SASL"),
    "test-brokers": ("bench_test_brokers:measure_test_brokers", "ten tests, each with a broker"),
    "tls": ("bench_tls:measure_tls", "1 KB over TLS, and the same without"),
}


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; `mode` is a key of MODES, or None."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.split("\n\n")[0])
    modes = parser.add_mutually_exclusive_group()
    for mode, (_, what) in MODES.items():
        modes.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, help=what)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of both brokers (default 1)")
    parser.add_argument("--only", choices=("kraftrio", "apache"), help="measure one broker only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    return parser.parse_args(argv)


Turns: TypeAlias = Generator[None]
Measurement: TypeAlias = Callable[[str, float, Metrics], "Turns | None"]
"""Measures one round of one kind of broker: at once, or in turns, at whose ends it yields."""


def measurement(mode: str | None) -> Measurement:
    """Return what measures one round of one kind of broker."""
    if mode is None:
        return measure
    module, _, function = MODES[mode][0].partition(":")
    found: Measurement = getattr(import_module(module), function)
    return found


def run_round(measure_one: Measurement, scale: float, results: dict[str, Metrics]) -> None:
    """One round of all brokers, by turns if it is measured so."""
    with ExitStack() as stack:
        turns: deque[Turns] = deque()
        for kind, metrics in results.items():
            run = measure_one(kind, scale, metrics)
            if run is not None:
                turns.append(stack.enter_context(closing(run)))
        while turns:
            run = turns.popleft()
            with suppress(StopIteration):
                next(run)
                turns.append(run)


def main() -> None:
    arguments = arguments_of()
    kinds = [arguments.only] if arguments.only else ["kraftrio", "apache"]
    results = {kind: Metrics() for kind in kinds}
    measure_one = measurement(arguments.mode)
    for _ in range(arguments.rounds):
        run_round(measure_one, 0.1 if arguments.quick else 1.0, results)
    show(results, arguments.rounds)
    if arguments.json:
        figures = {kind: metrics.values for kind, metrics in results.items()}
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
