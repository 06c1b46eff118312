"""What Spark's workers say where their Python has no kraftrio."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.spark import support

pytestmark = support.MARKS


@pytest.mark.parametrize("name", ["source.KraftrioSource", "log_source.KraftrioLogSource"])
def test_a_python_without_kraftrio_is_named(packages: None, name: str) -> None:
    """Also what to do; where it has kraftrio the class is the one that was sent."""
    from pyspark import cloudpickle

    module, _, attribute = name.partition(".")
    cls = getattr(import_module(f"kraftrio.clients.spark.{module}"), attribute)
    sent = cloudpickle.dumps(cls)
    assert cloudpickle.loads(sent) is cls
    assert type(cloudpickle.loads(cloudpickle.dumps(object.__new__(cls)))) is cls
    pyspark = str(Path(str(cloudpickle.__file__)).parents[2])
    code = "import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]\n"
    code += f"sys.path.append({pyspark!r})\nfrom pyspark import cloudpickle\n"
    code += f"cloudpickle.loads({sent!r})"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ModuleNotFoundError: Spark's workers run {sys.executable}, which has")
    assert "install kraftrio[spark] there" in said and "PYSPARK_PYTHON" in said
