"""Fits a message to an older version: `fit_version`.

The encoder refuses a value in a field that the version does not have, unless Kafka's definition
calls the field ignorable: dropping it silently could hide that something was lost. Where an answer
is always made in the newest version, such a field is a supplement, and older versions go without
it: the handler says so by calling this.

Called by: handlers whose answers are made for every version at once. See KIP-482 and `ignorable` in
Kafka's message definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kraftrio.wire.codec.lazy_arrays import LazyArray, each
from kraftrio.wire.codec.schema import STRUCT, Field, spec_of

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done with each struct of a class: fields to reset, fields to look into."""

    later: tuple[Field, ...]
    nested: tuple[tuple[str, _Plan], ...]


_PLANS: dict[tuple[type[Any], int], _Plan | None] = {}


def fit_version(message: M, version: int) -> M:
    """Reset, in place, every field that came after `version`, in nested structs too."""
    plan = _plan_for(type(message), version)
    if plan is not None:
        _apply(plan, message)
    return message


def _plan_for(cls: type[Any], version: int) -> _Plan | None:
    """Return what is to be done, None when the version has every field."""
    if (cls, version) not in _PLANS:
        _PLANS[cls, version] = _make_plan(cls, version)
    return _PLANS[cls, version]


def _make_plan(cls: type[Any], version: int) -> _Plan | None:
    fields = spec_of(cls).fields
    later = tuple(field for field in fields if version < field.versions.first)
    nested = []
    for field in fields:
        if version in field.versions and isinstance(field.element, type):
            inside = _plan_for(field.element, version)
            if inside is not None:
                nested.append((field.name, inside))
    return _Plan(later, tuple(nested)) if later or nested else None


def _apply(plan: _Plan, struct: Any) -> None:
    for field in plan.later:
        setattr(struct, field.name, _default(field))
    for name, inside in plan.nested:
        value = getattr(struct, name)
        if isinstance(value, LazyArray):
            setattr(struct, name, each(partial(_applied, inside), value))
        elif isinstance(value, list):
            for one in value:
                _apply(inside, one)
        elif value is not None:
            _apply(inside, value)


def _applied(plan: _Plan, struct: M) -> M:
    """Do it to an entry of a long array when that entry is made."""
    _apply(plan, struct)
    return struct


def _default(field: Field) -> Any:
    if field.kind is STRUCT and field.default is not None:
        assert isinstance(field.element, type)
        return field.element()
    return list(field.default) if isinstance(field.default, list) else field.default
