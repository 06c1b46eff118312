"""The facts about Apache Kafka's jars, tools and broker: scripts/apache_kafka.py as a module."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

from tests.conformance.requirements import missing

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def load() -> ModuleType:
    """Import the script once."""
    path = ROOT / "scripts" / "apache_kafka.py"
    spec = importlib.util.spec_from_file_location("kraftrio_apache_kafka", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def apache_kafka() -> ModuleType:
    """Return the script's module with Java and the jars at hand, or skip the calling test."""
    module = load()
    try:
        module.java_command()
    except module.UnavailableError as error:
        missing(str(error))
    return module
