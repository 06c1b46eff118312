"""The surroundings of a process: its outputs, terminal, addresses, limits and folder."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import trio

from kraftrio import Consumer, Producer
from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.node.local.cluster_layout import plan_cluster
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from tests.conformance.broker_process import Broker
from tests.integration.wire_client import WireClient, wait_until
from tests.unit.broker.server.test_listening import free_port, needs_ipv6

KRAFTRIO = [sys.executable, "-P", "-m", "kraftrio"]
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
STOP_S = 20.0


@contextmanager
def process(*arguments: object, **how: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command line; it is gone at the end."""
    running = subprocess.Popen([*KRAFTRIO, *map(str, arguments)], **how)  # type: ignore[call-overload]
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
        for pipe in (running.stdout, running.stderr):
            if pipe is not None:
                pipe.close()


def serves(host: str, port: int) -> bool:
    """Whether a broker answers at an address."""
    try:
        with WireClient((host, port)) as client:
            return bool(client.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE)
    except OSError:
        return False


def broken_pipe() -> int:
    """The writing end of a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def stuck_pipe() -> int:
    """The writing end of a full pipe without a reader."""
    _reading, writing = os.pipe()  # the reading end stays open until the test's process ends
    os.set_blocking(writing, False)
    for size in (4096, 1):
        try:
            while True:
                os.write(writing, b"x" * size)
        except BlockingIOError:
            pass
    os.set_blocking(writing, True)
    return writing


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("open_output", [full_disk, broken_pipe, stuck_pipe])
@pytest.mark.parametrize("which", ["stdout", "stderr", "both"])
def test_output_that_cannot_be_written(
    open_output: Callable[[], int], which: str, tmp_path: Path
) -> None:
    """The broker serves all the same, and stops as usual."""
    port, data = free_port(), tmp_path / "data"
    output = open_output()
    with (tmp_path / "log").open("wb") as log:
        how = {
            "stdout": log if which == "stderr" else output,
            "stderr": log if which == "stdout" else output,
        }
        with process("start", "--data", data, "--listen", f"localhost:{port}", **how) as running:
            wait_until(lambda: serves("localhost", port), "it serves")
            if which == "stdout" and open_output is not stuck_pipe:
                complaint = "the ready line cannot be written"
                wait_until(lambda: complaint in (tmp_path / "log").read_text(), "a line")
            running.terminate()
            assert running.wait(STOP_S) == 0
    os.close(output)
    assert (data / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("open_output", [full_disk, broken_pipe])
def test_a_cluster_whose_output_cannot_be_written(
    open_output: Callable[[], int], tmp_path: Path
) -> None:
    """Its nodes serve all the same."""
    planned = plan_cluster(
        OsFileSystem(), str(tmp_path / "data"), random.Random(), nodes=2, base_port=0
    )
    output = open_output()
    how = {"stdout": output, "stderr": output}
    with process("cluster", "--data", tmp_path / "data", **how) as running:
        for node in planned:
            wait_until(lambda port=node.port: serves("localhost", port), "it serves")  # type: ignore[misc]
        running.terminate()
        assert running.wait(STOP_S) == 0
    os.close(output)


def test_closed_descriptors(tmp_path: Path) -> None:
    """Without standard output and error no log line ends up in a file of data."""
    port, data = free_port(), tmp_path / "data"

    def close_all() -> None:
        for descriptor in range(3):
            os.close(descriptor)

    arguments = ("start", "--data", data, "--listen", f"localhost:{port}")
    with process(*arguments, preexec_fn=close_all) as running:
        wait_until(lambda: serves("localhost", port), "it serves")
        targets = [os.readlink(f"/proc/{running.pid}/fd/{number}") for number in range(3)]
        assert targets == ["/dev/null"] * 3
        running.terminate()
        assert running.wait(STOP_S) == 0


def test_hangup_is_a_graceful_stop(make_broker: Callable[..., Broker]) -> None:
    """Also when it comes several times, as from a terminal that closes."""
    broker = make_broker()
    assert broker.process is not None
    broker.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "stopping signal=SIGHUP" in broker.log_text(), "the stop")
    broker.process.send_signal(signal.SIGHUP)
    assert broker.wait_stopped() == 0
    assert (broker.data_directory / ".kafka_cleanshutdown").exists()
    assert "at once" not in broker.log_text()


def test_nohup(tmp_path: Path) -> None:
    """A process that was started to outlive its terminal does."""
    port = free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    arguments = ("start", "--data", tmp_path / "data", "--listen", f"localhost:{port}")

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with process(*arguments, preexec_fn=ignore, **quiet) as running:
        wait_until(lambda: serves("localhost", port), "it serves")
        running.send_signal(signal.SIGHUP)
        assert serves("localhost", port)
        running.terminate()
        assert running.wait(STOP_S) == 0


# -- addresses ------------------------------------------------------------------------------------


def properties(tmp_path: Path, **settings: object) -> Path:
    """A server.properties with its data beside it."""
    path = tmp_path / "server.properties"
    lines = [f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()]
    path.write_text("".join(lines) + f"log.dirs={tmp_path / 'data'}\n")
    return path


@needs_ipv6
def test_no_host_serves_both_families(tmp_path: Path) -> None:
    """In the form of Apache Kafka's own server.properties."""
    port = free_port()
    config = properties(
        tmp_path,
        listeners=f"PLAINTEXT://:{port}",
        advertised_listeners=f"PLAINTEXT://localhost:{port}",
    )
    with process("start", "--config", config, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"kraftrio ready ")
        assert serves("127.0.0.1", port)
        assert serves("::1", port)


async def send_and_read(bootstrap: str) -> list[bytes | None]:
    """Send two records with our own clients and read them as a group."""
    with trio.fail_after(STOP_S):
        async with Producer(bootstrap) as producer:
            for value in (b"one", b"two"):
                await (await producer.send("t", value=value))
        async with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["t"])
            found = []
            async for record in consumer:
                found.append(record.value)
                if len(found) == 2:
                    break
    return found


@needs_ipv6
def test_ipv6_alone(tmp_path: Path) -> None:
    """[::1] as an option, in the ready line, as a voter and as the advertised address."""
    port, controller = free_port(), free_port()
    config = properties(
        tmp_path,
        listeners=f"PLAINTEXT://[::1]:{port},CONTROLLER://[::1]:{controller}",
        controller_listener_names="CONTROLLER",
        controller_quorum_voters=f"1@[::1]:{controller}",
    )
    with process("start", "--config", config, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(f"kraftrio ready [::1]:{port} node=1".encode())
        with WireClient(("::1", port)) as client:
            brokers = client.call(MetadataRequest(topics=[])).brokers
        assert [(one.host, one.port) for one in brokers] == [("::1", port)]
        assert trio.run(send_and_read, f"[::1]:{port}") == [b"one", b"two"]
    arguments = ("start", "--data", tmp_path / "other", "--listen", "[::1]:0")
    with process(*arguments, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"kraftrio ready [::1]:")


# -- limits ---------------------------------------------------------------------------------------


def few_files(count: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def test_a_low_limit_of_open_files_is_logged(tmp_path: Path) -> None:
    """A low ulimit -n is one line at the start, and one when connections reach it."""
    port = free_port()
    arguments = ("start", "--data", tmp_path / "data", "--listen", f"localhost:{port}")
    with (tmp_path / "log").open("wb") as log, ExitStack() as stack:
        running = stack.enter_context(
            process(*arguments, preexec_fn=few_files(256), stdout=subprocess.PIPE, stderr=log)
        )
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"kraftrio ready ")
        for _ in range(70):
            stack.enter_context(socket.create_connection(("localhost", port)))
        text = (tmp_path / "log").read_text
        wait_until(lambda: "connection limit reached" in text(), "a line for the limit")
        running.terminate()
        assert running.wait(STOP_S) == 0
    assert text().count("few files may be open limit=256") == 1
    assert text().count("connection limit reached, others wait listener=PLAINTEXT limit=56") == 1


def test_far_too_few_open_files(tmp_path: Path) -> None:
    """One sentence says why it cannot start, and the exit status is not 0."""
    arguments = ("start", "--data", tmp_path / "data", "--listen", "localhost:0")
    with process(
        *arguments, preexec_fn=few_files(8), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        output, errors = running.communicate(timeout=STOP_S)
    assert running.returncode == 1
    assert output == b""
    assert b"Traceback" not in errors, errors.decode()
    assert errors == b"kraftrio: only 8 files may be open: raise it to 64 at least (ulimit -n)\n"


def test_refused_connections_of_an_address_are_few_lines(
    make_broker: Callable[..., Broker],
) -> None:
    """However often the address tries; another one has its own limit."""
    broker = make_broker(max_connections_per_ip=50, max_connections_per_ip_overrides="127.0.0.1:2")
    with ExitStack() as stack:
        for _ in range(2):
            client = stack.enter_context(WireClient((broker.host, broker.port)))
            assert client.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        for _ in range(50):
            refused = stack.enter_context(socket.create_connection((broker.host, broker.port)))
            with suppress(ConnectionResetError):
                assert refused.recv(1) == b""
    assert broker.log_text().count("connections refused client=127.0.0.1") == 1


# -- the folder it is started in ------------------------------------------------------------------


@pytest.fixture
def strange_folder(tmp_path: Path) -> Path:
    """A folder that holds the names of our modules, as a user's own may."""
    folder = tmp_path / "work"
    (folder / "kraftrio").mkdir(parents=True)
    (folder / "kraftrio" / "__init__.py").write_text("raise SystemExit('not this one')\n")
    for name in ("trio", "msgpack", "crc32c", "random", "pip", "venv"):
        (folder / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    return folder


def test_a_cluster_started_in_any_folder(strange_folder: Path, tmp_path: Path) -> None:
    """Files there are not taken for our modules, neither by the command nor by its nodes."""
    command = Path(sys.executable).with_name("kraftrio")
    arguments = ["cluster", "--nodes", "2", "--base-port", "0", "--data", str(tmp_path / "data")]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(
            [command, *arguments], cwd=strange_folder, stdout=subprocess.PIPE, stderr=log
        )
    assert running.stdout is not None
    try:
        lines = [running.stdout.readline() for _ in range(2)]
        assert all(line.startswith(b"kraftrio ready ") for line in lines), (
            tmp_path / "log"
        ).read_text()
    finally:
        running.terminate()
        assert running.wait(STOP_S) == 0
        running.stdout.close()


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("kraftrio", ["start", "--help"]),
        ("pipeline", ["--help"]),
        ("bench", ["--help"]),
        ("check", ["--help"]),
    ],
)
def test_scripts_start_in_any_folder(
    script: str, options: list[str], strange_folder: Path, tmp_path: Path
) -> None:
    """Each prints its options there; whatever else the script needs is there already."""
    folder = tmp_path / "checkout" / "scripts"
    folder.parent.mkdir()
    shutil.copytree(SCRIPTS, folder)
    (folder / "ensure_venv").write_text(f"#!/bin/sh\necho {sys.executable}\n")
    (folder.parent / ".venv").symlink_to(Path(sys.executable).parents[1])
    ended = subprocess.run(
        [folder / script, *options], cwd=strange_folder, capture_output=True, text=True,
        timeout=STOP_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "usage" in ended.stdout.lower()


# -- a cluster that cannot start ------------------------------------------------------------------


@pytest.mark.parametrize("node", [1, 2])
def test_a_cluster_with_a_node_that_cannot_listen(node: int, tmp_path: Path) -> None:
    """The command ends with the reason, and leaves no node behind."""
    planned = plan_cluster(
        OsFileSystem(), str(tmp_path / "data"), random.Random(), nodes=3, base_port=0
    )
    port = planned[node - 1].port
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        socket.create_server(("127.0.0.1", port)),
        process("cluster", "--data", tmp_path / "data", **quiet) as running,
    ):
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert f"[{node}] kraftrio: cannot listen on localhost:{port}: Address" in errors.decode()
    assert f"kraftrio: node {node} ended by itself: status 1" in errors.decode()
    for other in planned:
        assert not serves("localhost", other.port)
