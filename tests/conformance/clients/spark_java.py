"""The Java of Spark's tests: which it is, and how it starts soon.

A test's JVM lives for half a minute, of which Spark spends most on loading and compiling classes.
So it does without Java's best compiler, and maps Spark's own classes from an archive, which is made
on first use: that takes a third of what is left.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.clients import install
from tests.conformance.requirements import missing

HERE = Path(__file__).resolve().parent
NEEDED_MODULE = "jdk.incubator.vector"  # Spark names it on java's command line
# A JVM that lives for a minute does not earn back what its best compiler costs.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


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


@functools.cache
def archive() -> Path:
    """Return the archive of Spark's classes."""
    java = [apache_kafka().java_executable(), "-version"]
    version = subprocess.run(java, capture_output=True, text=True, check=False).stderr
    job = HERE / "spark_training.py"
    pins = [HERE / "spark.txt", job]
    packages = install.python_packages("spark.txt")

    def make(target: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            made = f"-XX:ArchiveClassesAtExit={target / 'spark.jsa'} -Xlog:disable"
            command = [sys.executable, "-P", str(job), folder, f"{QUICK} {made}"]
            train(command, str(packages))
        (target / "spark.jsa").touch()  # what a Java without archives takes for none

    return install.cached("spark-classes", pins, make, str(packages), version) / "spark.jsa"


def train(command: list[str], packages: str) -> None:
    """Run the job to its end and that of its JVM, which writes the archive when it ends."""
    environment = {"PYTHONPATH": packages, "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        command,
        env=os.environ | environment | {"JAVA_HOME": java_home()},
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
