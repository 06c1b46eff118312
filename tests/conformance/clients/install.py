"""Other projects' Kafka clients, fetched on first use into a cache; or why one cannot be had.

    python -m tests.conformance.clients.install      fetch all of them now

Each function returns where its client is, and calls `missing` when there is none (which skips the
test, or fails it under TEST_REQUIRE_TOOLS). All go through their registries' ordinary clients
(pip, npm, go, mvn, apt-get) at the versions pinned in this folder. They live in
${XDG_CACHE_HOME:-~/.cache}/kraftrio/clients/NAME-HASH, the hash being that of the pins: a changed
pin is a new folder, checkouts share them, and the project's virtual environment has none of them.
A folder appears by one rename, so that it is complete once it is there.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tests.conformance.requirements import missing, need_program

HERE = Path(__file__).resolve().parent
FETCH_TIMEOUT_S = 600
KCAT_PACKAGES = ("kcat", "librdkafka1", "libyajl2")


class FetchError(Exception):
    """A client could not be fetched or built; the text says why."""


def cache_directory() -> Path:
    """Return the folder that holds one folder per client and pin."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kraftrio" / "clients"


_refused: dict[str, str] = {}


def cached(name: str, pins: list[Path], make: Callable[[Path], None], *also: str) -> Path:
    """Return the folder of one client; where there is none, `make` fills a new one."""
    digest = hashlib.sha256("\0".join((*also, platform.machine())).encode())
    for pin in pins:
        digest.update(pin.read_bytes())
    target = cache_directory() / f"{name}-{digest.hexdigest()[:12]}"
    if target.is_dir():
        return target
    if target.name in _refused:
        missing(_refused[target.name])  # one try a session
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        print(f"fetching {name}", file=sys.stderr, flush=True)
        try:
            make(made)
        except FetchError as error:
            _refused[target.name] = f"no {name}: {error}"
            missing(_refused[target.name])
        try:
            made.rename(target)
        except OSError:  # somebody else's copy came first
            assert target.is_dir(), target
    return target


def run(command: list[str], *, cwd: Path = HERE, **environment: str) -> str:
    """Run one step of an installation and return its output."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{command[0]}: {error}") from error
    if done.returncode:
        tail = (done.stderr.strip() or done.stdout.strip())[-400:]
        raise FetchError(f"{' '.join(command[:4])} ended with {done.returncode}: {tail}")
    return done.stdout


@functools.cache
def python_packages(requirements: str) -> Path:
    """Return a folder for sys.path with what a requirements file of this folder names."""
    pins = HERE / requirements

    def install(target: Path) -> None:
        pip = [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "-q"]
        run([*pip, "--target", str(target), "-r", str(pins)])

    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return cached(pins.stem, [pins], install, version)


def python_client(name: str) -> ModuleType:
    """Import one of the Python clients; its folder goes to the end of the path for good."""
    folder = str(python_packages("python-clients.txt"))
    if folder not in sys.path:
        sys.path.append(folder)  # at the end: what the project itself uses comes first
    return importlib.import_module(name)


@functools.cache
def node_script(name: str) -> list[str]:
    """Return the command of a script in node/, whose first argument is where its modules are."""
    node = need_program("node")
    npm = need_program("npm")
    source = HERE / "node"
    pins = [source / "package.json", source / "package-lock.json"]

    def install(target: Path) -> None:
        for pin in pins:
            shutil.copy(pin, target)
        run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=target)

    modules = cached("node", pins, install)
    return [node, str(source / name), f"{modules}/"]


@functools.cache
def go_program(name: str) -> Path:
    """Return the program built from the folder go/NAME."""
    go = need_program("go")
    source = HERE / "go"
    pins = [source / "go.mod", source / "go.sum"]
    sources = [*pins, *sorted(source.glob("lines/*.go")), *sorted(source.glob(f"{name}/*.go"))]

    def build(target: Path) -> None:
        run([go, "build", "-o", str(target / name), f"./{name}"], cwd=source)

    return cached(name, sources, build) / name


@dataclass(frozen=True)
class Kcat:
    """kcat's command and the environment that it needs."""

    path: str
    environment: dict[str, str]


@functools.cache
def kcat() -> Kcat:
    """Return kcat from PATH, or else Debian's packages unpacked into the cache."""
    if found := shutil.which("kcat"):
        return Kcat(found, {})
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        missing("no kcat on PATH, and no apt-get to fetch it with")
    folder = cached("kcat", [], lambda target: unpack(target, KCAT_PACKAGES), *KCAT_PACKAGES)
    (library,) = {str(path.parent) for path in folder.rglob("librdkafka.so.1")}
    return Kcat(str(folder / "usr" / "bin" / "kcat"), {"LD_LIBRARY_PATH": library})


@functools.cache
def prometheus() -> str:
    """Return Prometheus from PATH, or else Debian's package unpacked into the cache."""
    if found := shutil.which("prometheus"):
        return found
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        missing("no prometheus on PATH, and no apt-get to fetch it with")
    folder = cached("prometheus", [], lambda target: unpack(target, ["prometheus"]), "prometheus")
    return str(folder / "usr" / "bin" / "prometheus")


def unpack(target: Path, packages: Sequence[str]) -> None:
    """Fetch Debian's packages with lists of our own, which needs no root, and unpack them."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "lists" / "partial").mkdir(parents=True)
        (scratch / "cache" / "archives" / "partial").mkdir(parents=True)
        apt = ["apt-get", "-q", "-o", f"Dir::State::Lists={scratch}/lists"]
        apt += ["-o", f"Dir::Cache={scratch}/cache", "-o", "APT::Sandbox::User="]
        run([*apt, "update"], cwd=scratch)
        run([*apt, "download", *packages], cwd=scratch)
        for package in sorted(scratch.glob("*.deb")):
            run(["dpkg-deb", "-x", str(package), str(target)])


@functools.cache
def spark_jars() -> str:
    """Return Spark's Kafka connector and what it needs beside pyspark, as spark.jars takes it."""
    return ",".join(map(str, maven_jars("spark-jars", HERE / "spark-pom.xml")))


@functools.cache
def streams_jars() -> str:
    """Return the class path of Kafka Streams and Connect."""
    return os.pathsep.join(map(str, maven_jars("streams", HERE / "java" / "pom.xml")))


def maven_jars(name: str, pom: Path) -> list[Path]:
    """Return the jars that a pom names, with what they need."""
    maven = need_program("mvn")

    def fetch(target: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        run([maven, "-q", "-B", "-Dstyle.color=never", "-f", str(pom), *goal])

    return sorted(cached(name, [pom], fetch).glob("*.jar"))


def main() -> int:
    """Fetch everything and say what could not be had."""
    code = 0
    steps: dict[str, Callable[[], object]] = {
        "Python clients": lambda: python_packages("python-clients.txt"),
        "FastStream": lambda: python_packages("faststream.txt"),
        "pyspark": lambda: python_packages("spark.txt"),
        "pyarrow": lambda: python_packages("arrow.txt"),
        "Spark's Kafka jars": spark_jars,
        "Kafka Streams and Connect": streams_jars,
        "kafkajs": lambda: node_script("kafkajs_driver.mjs"),
        "franz-go": lambda: go_program("franz"),
        "sarama": lambda: go_program("sarama"),
        "kafka-go": lambda: go_program("kafkago"),
        "kcat": kcat,
        "prometheus": prometheus,
    }
    for name, step in steps.items():
        try:
            step()
        except (pytest.skip.Exception, pytest.fail.Exception) as reason:
            print(f"{name}: {reason}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
