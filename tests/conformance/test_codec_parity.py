"""Our declarations and compiled codecs against Apache Kafka's message definitions.

Every declared message is compared with its definition: its versions, and in each version its
fields, their order, types, nullability, tags and defaults. Then random values go through our
codec and the interpreter of `definitions`, both ways, and must agree to the byte.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import random
from typing import Any

import pytest

import kraftrio.wire.messages
from kraftrio.wire.codec.message import StructSpec, decode, encode, spec_of
from kraftrio.wire.codec.schema import ARRAY, RECORDS, SPECS, STRUCT, Field, WireType
from kraftrio.wire.protocol.api import APIS
from tests.conformance.definitions import (
    Definition,
    FieldDef,
    decode_values,
    encode_values,
    load_definitions,
    random_values,
)
from tests.conformance.kafka_libs import jar_path

JARS = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-share-coordinator",
    "kafka-transaction-coordinator",
    "kafka-raft",
)
SAMPLES_PER_VERSION = 20

# What the advertised versions leave out or add, and why.
NOT_DECODED_BUT_ADVERTISED = {"Produce": (0, 1, 2)}  # old librdkafka looks for them (KIP-896)
DECODED_BUT_NOT_ADVERTISED = {"InitProducerId": (6,)}  # unstable in Kafka 4.3 (KIP-939)

for _module in pkgutil.walk_packages(
    kraftrio.wire.messages.__path__, f"{kraftrio.wire.messages.__name__}."
):
    importlib.import_module(_module.name)

MESSAGES = sorted(
    (
        cls
        for cls, spec in SPECS.items()
        if spec.versions is not None and cls.__module__.startswith("kraftrio.wire.messages.")
    ),
    key=lambda cls: cls.__name__,
)


@functools.cache
def definitions() -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for jar in JARS:
        found.update(load_definitions(jar_path(jar)))
    return found


def definition_of(cls: type[Any]) -> Definition:
    assert cls.__name__ in definitions(), f"Kafka has no message {cls.__name__}"
    return definitions()[cls.__name__]


def squash(name: str) -> str:
    """Make Kafka's and our form of a name equal: ClusterId, cluster_id."""
    return name.replace("_", "").lower()


def versions_of(spec: StructSpec) -> range:
    assert spec.versions is not None
    return range(spec.versions.first, spec.versions.last + 1)


# Our objects and the interpreter's dicts


def to_values(message: Any, fields: list[FieldDef]) -> dict[str, Any]:
    """Turn an object of ours into the interpreter's dict."""
    ours = {squash(item.name): item for item in spec_of(type(message)).fields}
    values = {}
    for item in fields:
        mine = ours.get(squash(item.name))
        if mine is None:  # of versions that we do not serve
            values[item.name] = item.default
            continue
        value = getattr(message, mine.name)
        if item.is_array and item.is_struct and value is not None:
            value = [to_values(element, item.fields) for element in value]
        elif item.is_struct and not item.is_array:
            if value is None and mine.is_absent_by_default:
                value = item.default
            elif value is not None:
                value = to_values(value, item.fields)
        elif mine.kind is RECORDS and value is not None:
            value = bytes(value)
        values[item.name] = value
    return values


def from_values(cls: type[Any], fields: list[FieldDef], values: dict[str, Any]) -> Any:
    """Turn the interpreter's dict into an object of ours."""
    ours = {squash(item.name): item for item in spec_of(cls).fields}
    arguments = {}
    for item in fields:
        mine = ours.get(squash(item.name))
        value = values[item.name]
        if mine is None:  # of versions that we do not serve
            assert value == item.default
            continue
        if item.is_struct and value is not None:
            assert isinstance(mine.element, type)
            if item.is_array:
                value = [from_values(mine.element, item.fields, element) for element in value]
            elif mine.is_absent_by_default and value == item.default:
                value = None
            else:
                value = from_values(mine.element, item.fields, value)
        arguments[mine.name] = value
    return cls(**arguments)


# The declarations


def describe_ours(field: Field, version: int) -> str:
    kind = field.kind.name
    if field.kind is ARRAY:
        kind = f"[]{field.element.name}" if isinstance(field.element, WireType) else "[]struct"
    tag = f" tag {field.tag}" if field.is_tagged(version) else ""
    null = " nullable" if version in field.nullable else ""
    own = "" if field.flexible is None else f" flexible {version in field.flexible}"
    return f"{squash(field.name)}: {kind}{null}{tag}{own}"


def describe_theirs(item: FieldDef, version: int) -> str:
    kind = item.type
    if item.is_struct:
        kind = "[]struct" if item.is_array else "struct"
    tag = f" tag {item.tag}" if item.tag is not None and version in item.tagged else ""
    null = " nullable" if version in item.nullable else ""
    own = "" if item.flexible is None else f" flexible {version in item.flexible}"
    return f"{squash(item.name)}: {kind}{null}{tag}{own}"


def default_of(field: Field, item: FieldDef) -> Any:
    if field.kind is STRUCT and field.default is not None:
        return to_values(field.default, item.fields)
    if field.is_absent_by_default:
        return item.default
    return field.default


def check_struct(spec: StructSpec, fields: list[FieldDef], versions: range, path: str) -> None:
    """Compare the fields of a struct in the versions in which it can occur."""
    for version in versions:
        ours = [describe_ours(f, version) for f in spec.fields if version in f.versions]
        theirs = [describe_theirs(f, version) for f in fields if version in f.versions]
        assert ours == theirs, f"{path} version {version}"
    by_name = {squash(item.name): item for item in fields}
    for field in spec.fields:
        here = f"{path}.{field.name}"
        assert squash(field.name) in by_name, f"Kafka does not have {here}"
        item = by_name[squash(field.name)]
        assert default_of(field, item) == item.default, f"default of {here}"
        if any(version not in item.versions for version in versions):
            assert field.ignorable == item.ignorable, f"{here}: ignorable"
        if isinstance(field.element, type):
            inside = [version for version in versions if version in item.versions]
            check_struct(
                spec_of(field.element), item.fields, range(inside[0], inside[-1] + 1), here
            )


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_declaration_is_the_definition(cls: type[Any]) -> None:
    """Versions, fields, types, nullability, tags, defaults and ignorability are Kafka's."""
    spec = spec_of(cls)
    definition = definition_of(cls)
    if definition.type in ("request", "response"):  # keys of internal records are record types
        assert spec.api_key == definition.api_key
    assert spec.versions is not None
    assert (spec.versions.first, spec.versions.last) == (
        definition.valid.first,
        definition.valid.last,
    )
    for version in versions_of(spec):
        assert (version in spec.flexible) == (version in definition.flexible), version
    check_struct(spec, definition.fields, versions_of(spec), cls.__name__)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_codec_agrees_with_the_definition(cls: type[Any]) -> None:
    """Random values encode to the same bytes as by the definition, and decode to themselves."""
    definition = definition_of(cls)
    for version in versions_of(spec_of(cls)):
        rng = random.Random(f"{cls.__name__} {version}")
        for _ in range(SAMPLES_PER_VERSION):
            values = random_values(definition, version, rng)
            message = from_values(cls, definition.fields, values)
            theirs = encode_values(definition, version, values)
            ours = encode(message, version)
            assert ours == theirs, f"version {version}: {values}"
            decoded, end = decode(cls, version, theirs)
            assert end == len(theirs)
            assert decoded == message, f"version {version}"
            assert to_values(decoded, definition.fields) == values, f"version {version}"
            assert decode_values(definition, version, ours) == (values, len(ours))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_defaults_encode_like_the_definition(cls: type[Any]) -> None:
    """A message of defaults has the same bytes as by the definition, wherever it has any."""
    definition = definition_of(cls)
    for version in versions_of(spec_of(cls)):
        values = {item.name: item.default for item in definition.fields}
        if any(
            values[item.name] is None and version in item.versions and version not in item.nullable
            for item in definition.fields
        ):
            continue
        assert encode(cls(), version) == encode_values(definition, version, values)


def test_every_api_is_advertised_as_in_kafka() -> None:
    """The table has Kafka's names, listeners and versions, but for the exceptions named above."""
    for key, api in APIS.items():
        definition = definitions()[f"{api.name}Request"]
        assert definition.api_key == key
        assert definitions()[f"{api.name}Response"].api_key == key
        assert api.listeners == definition.listeners, api.name
        assert api.latest_unstable == definition.latest_unstable, api.name
        advertised = set(range(api.min_version, api.max_version + 1))
        expected = set(range(definition.valid.first, definition.valid.last + 1))
        expected |= set(NOT_DECODED_BUT_ADVERTISED.get(api.name, ()))
        expected -= set(DECODED_BUT_NOT_ADVERTISED.get(api.name, ()))
        assert advertised == expected, api.name
        for version in advertised:
            assert api.is_flexible(version) == (version in definition.flexible), api.name


def test_every_declared_request_is_in_the_table() -> None:
    """No API is declared and then forgotten in the table."""
    declared = {spec.api_key for cls in MESSAGES if (spec := spec_of(cls)).api_key is not None}
    assert declared == set(APIS)
