"""Explains the error where the Python of Spark's workers has no kraftrio.

Spark sends its workers the classes of a data source by name; where their Python cannot import
them, the query fails with a bare "No module named". So classes with the metaclass `NeedsKraftrio`
are sent as a call of a function that goes along as code, and explains.

Called by: the data sources, their readers and writers.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from typing import Any


class NeedsKraftrio(ABCMeta):
    """The metaclass of what workers must be able to import."""


def _imported(module: str, name: str) -> Any:
    import importlib
    import sys

    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise ModuleNotFoundError(
            f"Spark's workers run {sys.executable}, which has no module {missing!r}: install"
            " kraftrio[spark] there, on every executor, or set PYSPARK_PYTHON to a Python that has"
            " it before the session is made",
            name=error.name,
        ) from None


_imported.__module__ = "__main__"  # so that it is sent as code, not by its name


def _by_call(cls: type) -> tuple[Any, tuple[str, str]]:
    return _imported, (cls.__module__, cls.__qualname__)


copyreg.pickle(NeedsKraftrio, _by_call)
