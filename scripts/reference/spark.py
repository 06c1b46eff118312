"""The page of the options of Spark's data sources, from the docstring of `KraftrioSource`.

It is read as text, so that the page can be made where there is no pyspark.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "clients" / "spark" / "source.py"


def page() -> Iterator[str]:
    """The table of options, and what is said about it."""
    classes = (
        node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.ClassDef)
    )
    docs = {found.name: ast.get_docstring(found) or "" for found in classes}
    lines = docs["KraftrioSource"].splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) > 10, "KraftrioSource has no table of options in its docstring"
    yield "# Options of Spark's sources"
    yield ""
    yield 'Of `format("kraftrio")`, for reading and writing, in batches and streams. Names are'
    yield "those of Spark's own `kafka` format; an unknown one is refused with the nearest. What a"
    yield "value is when nobody sets it stands in brackets. Made from the docstring of"
    yield "`KraftrioSource`."
    yield ""
    yield from rows
