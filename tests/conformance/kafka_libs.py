"""Where Apache Kafka's jars are: KAFKA_LIBS_DIR, or what scripts/apache_kafka.py fetches."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from tests.conformance.requirements import missing

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "apache_kafka.py"
FETCH_TIMEOUT_S = 600


@functools.cache
def _libs_dir() -> tuple[Path | None, str]:
    """Return the folder that holds the jars, or why there is none."""
    if given := os.environ.get("KAFKA_LIBS_DIR"):
        return Path(given), ""
    try:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "libs"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return None, f"{SCRIPT.name} libs: {exc}"
    if done.returncode:
        return None, f"{SCRIPT.name} libs failed: {done.stderr.strip()[-300:]}"
    return Path(done.stdout.strip().splitlines()[-1]), ""


def jar_path(name: str = "kafka-clients") -> Path:
    """Return the path of a jar of Apache Kafka; skip the test when it cannot be had."""
    folder, reason = _libs_dir()
    if folder is None:
        missing(f"Apache Kafka's jars are not available: {reason}")
    jars = sorted(folder.glob(f"{name}-[0-9]*.jar"))
    if not jars:
        missing(f"no {name} jar in {folder}")
    return jars[-1]
