"""What `import kraftrio` offers: every name, imported when it is asked for and not before."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import kraftrio

SPARK_NAMES = ("KraftrioLogSource", "KraftrioSource")


@pytest.mark.parametrize("name", sorted(set(kraftrio.__all__) - {"__version__"}))
def test_names_are_those_of_their_homes(name: str) -> None:
    """A public name is the very object of the module that defines it, and `dir` lists it."""
    found = getattr(kraftrio, name)
    assert found is getattr(import_module(kraftrio._HOMES[name]), name)
    assert found.__module__ == kraftrio._HOMES[name] and found.__doc__
    assert name in dir(kraftrio)


def test_every_home_is_public_or_of_spark() -> None:
    """No name is kept from `*` but those that want pyspark."""
    assert set(kraftrio._HOMES) - set(kraftrio.__all__) == set(SPARK_NAMES)


def test_unknown_names_are_refused() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'Broom'"):
        kraftrio.Broom  # noqa: B018


def test_the_types_are_marked_as_such() -> None:
    """Type checkers of users look for the marker beside the package."""
    assert (Path(kraftrio.__file__).parent / "py.typed").is_file()


def output_of(program: str) -> str:
    """Return what a program prints in a fresh interpreter."""
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    """A broker does not pay for the clients, nor the clients for Spark; the version is there."""
    program = (
        "import sys, kraftrio; before = {m for m in sys.modules if m.startswith('kraftrio.')};"
        "before -= {'kraftrio.base', 'kraftrio.base.version'};"
        "from kraftrio import *; print(sorted(before), 'pyspark' in sys.modules, Producer.__name__)"
    )
    assert output_of(program) == "[] False Producer"


@pytest.mark.parametrize("name", SPARK_NAMES)
def test_without_pyspark_the_extra_is_named(name: str) -> None:
    """Without pyspark the error says what to install."""
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        f"try:\n    from kraftrio import {name}\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    # pyarrow comes first, where it is missing too.
    assert output_of(program) in {
        f"kraftrio.{name} needs {missing}: pip install 'kraftrio[spark]'"
        for missing in ("pyspark", "pyarrow")
    }
