"""The pipeline on a Spark cluster of its own kind: a master and two workers, each a process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.conformance.clients import install, spark_java
from tests.conformance.cluster_process import Cluster
from tests.pipeline import support
from tests.pipeline.support import Feed, Pipeline

pytestmark = pytest.mark.timeout(900)

START_DEADLINE_S = 120
HOST = "127.0.0.1"
BEFORE = "2013-01-19"


class SparkCluster:
    """A standalone cluster in one folder; its processes end with the `with` block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        self.folder.mkdir()
        self._start("master", "master.Master", "--port", str(port))
        self.address = f"spark://{HOST}:{port}"
        self._wait_for("master", r"I have been elected leader")
        return self

    def __exit__(self, *reason: object) -> None:
        for process in self._processes:
            self.kill9(process)

    def start_worker(self, name: str) -> subprocess.Popen[bytes]:
        """Start a worker of one core."""
        room = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name)]
        process = self._start(name, "worker.Worker", *room, self.address)
        self._wait_for(name, "Successfully registered with master")
        return process

    def kill9(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _start(self, name: str, kind: str, *options: str) -> subprocess.Popen[bytes]:
        home = install.python_packages("spark.txt") / "pyspark"
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "JAVA_HOME": spark_java.java_home(),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": spark_java.java_options(),
        }
        command = ["bash", str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        command += ["--host", HOST, "--webui-port", "0", *options]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _wait_for(self, name: str, pattern: str) -> None:
        log = self.folder / f"{name}.log"
        deadline = time.monotonic() + START_DEADLINE_S
        while not re.search(pattern, log.read_text(errors="replace")):
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
            time.sleep(0.2)


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """A master without workers yet."""
    with SparkCluster(tmp_path / "spark") as started:
        yield started


def test_a_worker_and_a_broker_are_killed(
    cluster: Cluster, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """The results are those of the files all the same."""
    trio.run(lambda: Feed(bad=0, before=BEFORE).send(cluster.bootstrap, replicas=3))
    workers = [spark_cluster.start_worker(f"worker-{number}") for number in (1, 2)]
    pipeline = Pipeline(cluster.bootstrap, tmp_path, spark_cluster.address)
    conf = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "800m",
        **spark_java.settings("executor"),
        "spark.sql.shuffle.partitions": "2",
    }
    run = pipeline.run("--max-offsets-per-trigger", "5500", *support.settings(conf))
    run.wait_for(run.batches, "a batch")
    time.sleep(1)  # into the next batch
    spark_cluster.kill9(workers[0])
    run.wait_for(lambda: len(run.batches()) > 1, "a batch after a worker was killed")
    cluster.node(cluster.leader("flights", 1)).kill9()
    assert run.wait() == 0, run.text
    expected = support.expected_results(BEFORE)
    support.check_results(support.parquet_results(pipeline.output), expected)
    support.check_results(support.topic_results(cluster.bootstrap), expected)
    cluster.heal()
