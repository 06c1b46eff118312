"""Answers in older versions: every API, every version, with something in every field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kraftrio.wire.codec.lazy_arrays import LazyArray, each
from kraftrio.wire.codec.message import decode, encode, spec_of
from kraftrio.wire.codec.schema import (
    ARRAY,
    BOOL,
    BYTES,
    RECORDS,
    STRING,
    STRUCT,
    UUID,
    Field,
    WireType,
)
from kraftrio.wire.errors import LocalProtocolError
from kraftrio.wire.protocol.api import APIS, Api
from kraftrio.wire.protocol.fitting import fit_version

ANSWERS = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    if (versions := spec_of(api.response).versions) is not None and version in versions
]


def full(cls: type[Any], versions: range) -> Any:
    """A message with something in every field that some of these versions have."""
    values = {
        field.name: _something(field.kind, field.element, field.default, versions)
        for field in spec_of(cls).fields
        if any(version in field.versions for version in versions)
    }
    return cls(**values)


def _something(
    kind: WireType, element: WireType | type[Any] | None, default: object, versions: range
) -> Any:
    if isinstance(element, type):
        one = full(element, versions)
        return [one, copy.deepcopy(one)] if kind is ARRAY else one
    if kind is ARRAY:
        assert element is not None
        return [_something(element, None, None, versions)]
    if kind is BOOL:
        return not default
    if kind is STRING:
        return "text"
    if kind in (BYTES, RECORDS):
        return b"bytes"
    if kind is UUID:
        return b"0123456789abcdef"
    return 3.0 if kind.code == "d" else 3


def same(value: Any) -> Any:
    """A value to compare: records are views after decoding."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [same(one) for one in value]
    if hasattr(type(value), "__slots__") and not isinstance(value, str | bytes | int | float):
        return {name: same(getattr(value, name)) for name in type(value).__slots__}
    return value


def outside(cls: type[Any], version: int) -> list[Field]:
    """The fields that a version does not have and that may not be dropped silently."""
    found = []
    for field in spec_of(cls).fields:
        if version not in field.versions:
            found += [] if field.ignorable else [field]
        elif field.kind in (ARRAY, STRUCT) and isinstance(field.element, type):
            found += outside(field.element, version)
    return found


@pytest.mark.parametrize(("api", "version"), ANSWERS)
def test_an_answer_fits_every_version(api: Api, version: int) -> None:
    """What a version lacks is left out of a fitted answer, and everything else arrives."""
    message = full(api.response, range(version, api.max_version + 1))
    fitted = fit_version(copy.deepcopy(message), version)
    decoded, _ = decode(api.response, version, encode(fitted, version))
    assert same(decoded) == same(fitted)
    expected = full(api.response, range(version, version + 1))
    assert same(decoded) == same(fit_version(expected, version))


@pytest.mark.parametrize(("api", "version"), ANSWERS)
def test_the_encoder_drops_only_what_is_ignorable(api: Api, version: int) -> None:
    """A value that may not be dropped is refused, so that no handler loses it unawares."""
    message = full(api.response, range(version, api.max_version + 1))
    if any(
        version < field.versions.first <= api.max_version
        for field in outside(api.response, version)
    ):
        with pytest.raises(LocalProtocolError, match="does not have this field"):
            encode(message, version)
    else:
        assert encode(message, version) == encode(fit_version(message, version), version)


def test_a_message_that_fits_is_left_alone() -> None:
    """The newest version has everything."""
    for api in APIS.values():
        message = full(api.response, range(api.max_version, api.max_version + 1))
        before = copy.deepcopy(message)
        assert fit_version(message, api.max_version) is message
        assert same(message) == same(before)


@pytest.mark.parametrize(("api", "version"), ANSWERS)
def test_long_arrays_that_are_made_while_they_are_encoded(api: Api, version: int) -> None:
    """They are fitted entry by entry, as lists are at once."""
    versions = range(version, api.max_version + 1)
    listed, made = full(api.response, versions), full(api.response, versions)
    arrays = [
        field.name
        for field in spec_of(api.response).fields
        if field.kind is ARRAY and isinstance(field.element, type) and version in field.versions
    ]
    for name in arrays:
        entries = getattr(listed, name) * 20
        setattr(listed, name, [copy.deepcopy(one) for one in entries])
        setattr(made, name, each(copy.deepcopy, entries))
        assert isinstance(getattr(made, name), LazyArray)
    expected = encode(fit_version(listed, version), version)
    assert encode(fit_version(made, version), version) == expected
