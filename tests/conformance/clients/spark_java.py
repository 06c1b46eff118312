"""The Java of Spark's tests: which it is, and how it starts soon.

A test's JVM lives for half a minute, of which Spark spends most on loading and compiling classes.
So it does without Java's best compiler, and maps Spark's own classes from an archive, which is made
on first use: that takes a third of what is left.

    python -m tests.conformance.clients.spark_java      make it now
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.broker_process import start_broker
from tests.conformance.clients import install
from tests.conformance.requirements import missing

HERE = Path(__file__).resolve().parent
NEEDED_MODULE = "jdk.incubator.vector"  # Spark names it on java's command line
# A JVM that lives for a minute does not earn back what its best compiler costs.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TRAINING = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@functools.cache
def java_home() -> str:
    """Return the JAVA_HOME of a Java that Spark can run on."""
    java = apache_kafka().java_executable()
    shown = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    if NEEDED_MODULE not in shown.stdout:
        missing(f"Spark's Java must have the module {NEEDED_MODULE}, and {java} has not")
    return str(Path(java).parent.parent)


def java_options() -> str:
    """Return the options of a JVM that starts soon; a Java without archives ignores one of them."""
    return f"{QUICK} -Xshare:auto -XX:SharedArchiveFile={archive()}"


def class_path() -> str:
    """Return the connector's jars: on the class path, for those of spark.jars are in no archive."""
    return install.spark_jars().replace(",", os.pathsep)


def settings(of: str = "driver") -> dict[str, str]:
    """Return Spark's settings for JVMs that start soon: the driver's or the executors'."""
    return {
        f"spark.{of}.extraJavaOptions": java_options(),
        f"spark.{of}.extraClassPath": class_path(),
    }


@functools.cache
def archive() -> Path:
    """Return the archive of Spark's classes and the connector's."""
    java = [apache_kafka().java_executable(), "-version"]
    version = subprocess.run(java, capture_output=True, text=True, check=False).stderr
    job = HERE / "spark_training.py"
    pins = [HERE / "spark.txt", HERE / "spark-pom.xml", job]
    packages = str(install.python_packages("spark.txt"))

    def make(target: Path) -> None:
        made = f"{QUICK} -XX:ArchiveClassesAtExit={target / 'spark.jsa'} -Xlog:disable"
        with tempfile.TemporaryDirectory() as folder:
            broker = start_broker(Path(folder) / "broker")
            try:
                conf = TRAINING | {
                    "spark.driver.extraJavaOptions": made,
                    "spark.driver.extraClassPath": class_path(),
                }
                command = [sys.executable, "-P", str(job), folder, broker.address]
                train([*command, json.dumps(conf)], packages)
            finally:
                broker.close()
        (target / "spark.jsa").touch()  # what a Java without archives takes for none

    return install.cached("spark-classes", pins, make, packages, version) / "spark.jsa"


def train(command: list[str], packages: str) -> None:
    """Run the job to its end and that of its JVM, which writes the archive when it ends."""
    environment = {
        "PYTHONPATH": packages,
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": java_home(),
    }
    process = subprocess.Popen(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=install.FETCH_TIMEOUT_S)  # the JVM holds it open
    except subprocess.TimeoutExpired as error:
        raise install.FetchError(f"Spark's training did not end: {error}") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise install.FetchError(f"Spark's training failed: {said.strip()[-400:]}")


if __name__ == "__main__":
    try:
        archive()
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        sys.exit(f"Spark's classes: {reason}")
