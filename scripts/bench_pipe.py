"""How fast `kraftrio produce` and `consume` move lines through a pipe, beside kcat in one run.

Called by `bench.py --pipe`. A file of lines (1 GB) goes into a topic of one partition, and out of
it again, by each program in turn, so that both meet one broker; lines of 100 bytes, and of 1 KB.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import bench
from bench import Measurable, Metrics

GB = 1_000_000_000
_LENGTHS = {"100 B": (60, 120), "1 KB": (500, 1500)}
_CHUNK = 1_000


def measure_pipe(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one kind of broker."""
    if shutil.which("kcat") is None:
        raise SystemExit("kcat is not on this machine")
    with tempfile.TemporaryDirectory(prefix="kraftrio-pipe-") as folder:
        for name, (least, most) in _LENGTHS.items():
            lines = Path(folder, "lines")
            count = write_lines(lines, int(GB * scale), least, most)
            with bench.running(kind, metrics) as broker:
                measure_lines(broker, lines, count, name, metrics)


def write_lines(path: Path, size_bytes: int, least: int, most: int) -> int:
    """Write lines of random lengths; return how many."""
    rng = random.Random(1)
    text = bytes(rng.choice(b"abcdefghijklmnopqrstuvwxyz 0123456789{}") for _ in range(8_000))
    count = written = 0
    with path.open("wb") as file:
        while written < size_bytes:
            part = b"".join(_lines(rng, text, count, least, most))
            file.write(part)
            written += len(part)
            count += _CHUNK
    return count


def _lines(rng: random.Random, text: bytes, first: int, least: int, most: int) -> Iterator[bytes]:
    for number in range(first, first + _CHUNK):
        start = rng.randrange(len(text) - most)
        yield b"%010d %b\n" % (number, text[start : start + rng.randrange(least, most)])


def measure_lines(broker: Measurable, lines: Path, count: int, name: str, metrics: Metrics) -> None:
    """Move the lines in and out by both programs."""
    ours = [sys.executable, "-m", "kraftrio"]
    kcat = ["kcat", "-b", broker.address, "-q"]
    environment = {**os.environ, "KRAFTRIO_BOOTSTRAP_SERVER": broker.address}
    commands = {
        "kraftrio": (["produce", "{topic}"], ["consume", "{topic}", "--count", str(count)], ours),
        "kcat": (["-P", "-t", "{topic}"], ["-C", "-t", "{topic}", "-c", str(count)], kcat),
    }
    rates: dict[tuple[str, str], float] = {}
    for program, (produce, consume, start) in commands.items():
        topic = f"lines-{program}-{count}"
        create = [*ours, "topic", "create", topic, "--partitions", "1"]
        subprocess.run(create, env=environment, check=True, stdout=subprocess.DEVNULL)
        for what, options in (("produce", produce), ("consume", consume)):
            command = [*start, *(option.replace("{topic}", topic) for option in options)]
            source = lines if what == "produce" else None
            took_s = seconds(command, environment, source)
            rates[program, what] = lines.stat().st_size / took_s / 1e6
            metrics.add(f"{what} lines of {name} by {program}, MB/s", rates[program, what])
    for what in ("produce", "consume"):
        ratio = rates["kraftrio", what] / rates["kcat", what]
        metrics.add(f"{what} lines of {name}, kraftrio / kcat", ratio)


def seconds(command: list[str], environment: dict[str, str], source: Path | None) -> float:
    """Return how long a command takes to read a file through a pipe, or to be read through one."""
    began_at = time.perf_counter()
    writer = None
    if source is not None:
        writer = subprocess.Popen(["cat", str(source)], stdout=subprocess.PIPE)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if writer is None else writer.stdout,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        if writer is not None:
            assert writer.stdout is not None
            writer.stdout.close()
        assert process.stdout is not None
        while process.stdout.read(1 << 20):
            pass
        assert process.wait() == 0, command
    if writer is not None:
        writer.wait()
    return time.perf_counter() - began_at
