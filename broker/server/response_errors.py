"""The error codes of a response, wherever they are in it.

Entries of arrays that are made only while they are encoded are not looked at: those are of answers
about very many things. Called by `dispatch`, for every response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kraftrio.wire.codec.schema import ARRAY, ERROR, SPECS
from kraftrio.wire.errors import ErrorCode

_NONE = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class _Places:
    """Where error codes are in a message: fields of its own, and arrays of what has some."""

    codes: tuple[str, ...]
    arrays: tuple[tuple[str, _Places], ...]


_PLACES: dict[type[Any], _Places] = {}


def error_codes(response: Any, *, nested: bool = True) -> Sequence[int]:
    """Give the codes of all errors in a response, one for each place that has one.

    Args:
        nested: look also at its entries; False where they are very many.
    """
    cls = type(response)
    places = _PLACES.get(cls)
    if places is None:
        places = _PLACES[cls] = _places_of(cls)
    found: list[int] = []
    _gather(response, places if nested else _Places(places.codes, ()), found)
    return found


def _gather(message: Any, places: _Places, found: list[int]) -> None:
    for name in places.codes:
        code = getattr(message, name, _NONE)
        if code is not _NONE and code:
            found.append(code)
    for name, inner in places.arrays:
        entries = getattr(message, name, None)
        if type(entries) is list:
            for entry in entries:
                _gather(entry, inner, found)


def _places_of(cls: type[Any]) -> _Places:
    codes, arrays = [], []
    for field in SPECS[cls].fields:
        if field.kind is ERROR:
            codes.append(field.name)
        elif field.kind is ARRAY and isinstance(field.element, type):
            inner = _places_of(field.element)
            if inner.codes or inner.arrays:
                arrays.append((field.name, inner))
    return _Places(tuple(codes), tuple(arrays))
