"""The error codes of a response, wherever they are in it.

Entries of arrays that are made only while they are encoded are not looked at: those are of answers
about very many things. This is done for every response, so that, as for the codecs, a function is
compiled for each class. Called by `dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from kraftrio.wire.codec.schema import ARRAY, ERROR, SPECS
from kraftrio.wire.errors import ErrorCode

_Finder: TypeAlias = Callable[[Any, list[int]], None]

_FINDERS: dict[type[Any], _Finder] = {}
_FINDERS_OF_OWN: dict[type[Any], _Finder] = {}


def error_codes(response: Any, *, nested: bool = True) -> Sequence[int]:
    """Give the codes of all errors in a response, one for each place that has one.

    Args:
        nested: look also at its entries; False where they are very many.
    """
    finders = _FINDERS if nested else _FINDERS_OF_OWN
    cls = type(response)
    find = finders.get(cls)
    if find is None:
        find = finders[cls] = _compiled(cls, nested)
    found: list[int] = []
    find(response, found)
    return found


def _compiled(cls: type[Any], nested: bool) -> _Finder:
    """Make the function that looks at a class's places."""
    lines = ["def find(m0, found):", *(_lines(cls, 0, nested=nested) or ["    return"])]
    namespace: dict[str, Any] = {"NONE": ErrorCode.NONE}
    exec("\n".join(lines), namespace)
    finder: _Finder = namespace["find"]
    return finder


def _lines(cls: type[Any], depth: int, *, nested: bool) -> list[str]:
    indent, message, entry = "    " * (2 * depth + 1), f"m{depth}", f"m{depth + 1}"
    lines = []
    for name in _codes(cls):
        lines += [
            f"{indent}code = {message}.{name}",
            f"{indent}if code is not NONE and code: found.append(code)",
        ]
    for name, element in _arrays(cls) if nested else ():
        inner = _lines(element, depth + 1, nested=True)
        if inner:
            lines += [
                f"{indent}if type({message}.{name}) is list:",
                f"{indent}    for {entry} in {message}.{name}:",
                *inner,
            ]
    return lines


def _codes(cls: type[Any]) -> list[str]:
    return [field.name for field in SPECS[cls].fields if field.kind is ERROR]


def _arrays(cls: type[Any]) -> Iterator[tuple[str, type[Any]]]:
    for field in SPECS[cls].fields:
        if field.kind is ARRAY and isinstance(field.element, type):
            yield field.name, field.element
