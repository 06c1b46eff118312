"""The page of the clients' settings, from their dataclasses and the sheet of meanings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from kraftrio.clients.config import AdminConfig, ClientConfig, ProducerConfig
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.security import SECURITY_NAMES
from kraftrio.clients.share.config import ShareConsumerConfig
from reference.client_sheet import meanings
from reference.tables import code, section, table

_OWN = {
    "Producer": ProducerConfig,
    "Consumer": ConsumerConfig,
    "ShareConsumer": ShareConsumerConfig,
    "Admin": AdminConfig,
}


def page() -> Iterator[str]:
    """Every setting of every client: its type, its default, its meaning."""
    yield "# Settings of the clients"
    yield ""
    yield "Names and defaults are those of the Java clients, with `_` for `.`: `linger_ms=10` is"
    yield '`linger.ms`. They are keyword arguments: `Producer("localhost:9092", linger_ms=10)`.'
    yield "Times are milliseconds, sizes are bytes. Made from the classes of the clients."
    known = meanings()
    common = {field.name: field for field in fields(ClientConfig)}
    yield from _part("All clients", [f for f in common.values() if f.name not in SECURITY_NAMES])
    yield from _part(
        "Security", [field for name, field in common.items() if name in SECURITY_NAMES]
    )
    used = set(common)
    for client, config in _OWN.items():
        own = [
            f
            for f in fields(config)
            if (f.name not in common) or f.default != common[f.name].default
        ]
        used |= {field.name for field in own}
        yield from _part(client, own)
    yield from section(
        "Keys and values",
        "`Producer(key_serializer=, value_serializer=)` make bytes of keys and values;\n"
        "`Consumer(key_deserializer=, value_deserializer=)` and `ShareConsumer` make objects of\n"
        "them again. Any function will do; `json_serializer`, `string_serializer`,\n"
        "`msgpack_serializer` and the `..._deserializer` beside each are in `kraftrio`. Without\n"
        "one they are bytes.",
    )
    assert used == set(known), f"not settings, in client_sheet: {set(known) - used}"


def _part(heading: str, settings: list[Field[Any]]) -> Iterator[str]:
    known = meanings()
    missing = [field.name for field in settings if field.name not in known]
    assert not missing, f"say in scripts/reference/client_sheet.py what {missing} mean"
    yield from section(heading)
    yield from table(
        ("setting", "type", "default", "meaning"),
        ((code(f.name), code(str(f.type)), _default(f), known[f.name]) for f in settings),
    )


def _default(field: Field[Any]) -> str:
    return "required" if field.default is MISSING else code(repr(field.default))
