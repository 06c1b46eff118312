"""Keys and values that are not bytes: what turns them into bytes, and back.

A serializer is any function from an object to bytes, a deserializer one from bytes to an object;
those for JSON, strings and msgpack are here. A key or value that is None stays None: they are not
asked. What a serializer raises, the call that was given the object raises as it is; a record that a
deserializer cannot read is a `RecordDeserializationError`, which says where it is.

Pure. Called by: the producer, the consumer and the share consumer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgpack

from kraftrio.clients.arguments.values import check_function
from kraftrio.clients.errors import RecordDeserializationError
from kraftrio.wire.primitives import TopicPartition

if TYPE_CHECKING:  # with a default, which Python has from 3.13 on
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Serializer: TypeAlias = Callable[[K], bytes | None]
Deserializer: TypeAlias = Callable[[bytes], K]


def json_serializer(value: Any) -> bytes:
    """Write a value as JSON, in UTF-8 and without spaces.

    Raises:
        TypeError, ValueError: JSON has no such value, as for NaN.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def json_deserializer(data: bytes) -> Any:
    """Read JSON in UTF-8.

    Raises:
        ValueError: the bytes are not JSON.
    """
    return json.loads(data)


def string_serializer(value: str) -> bytes:
    """Write a string in UTF-8.

    Raises:
        TypeError: the value is not a string.
        ValueError: UTF-8 cannot hold it.
    """
    if not isinstance(value, str):
        raise TypeError(f"a string is wanted, not {value!r}")
    return value.encode()


def string_deserializer(data: bytes) -> str:
    """Read a string in UTF-8.

    Raises:
        ValueError: the bytes are not UTF-8.
    """
    return data.decode()


def msgpack_serializer(value: Any) -> bytes:
    """Write a value as msgpack; datetimes with a time zone as its timestamps.

    Raises:
        TypeError, ValueError: msgpack has no such value.
    """
    packed: bytes = msgpack.packb(value, datetime=True)
    return packed


def msgpack_deserializer(data: bytes) -> Any:
    """Read msgpack; timestamps as datetimes in UTC.

    Raises:
        ValueError: the bytes are not msgpack, or are cut off.
    """
    return msgpack.unpackb(data, timestamp=3, strict_map_key=False)


class Deserializers:
    """Those of a consumer: None leaves bytes as they are.

    Raises:
        TypeError: one cannot be called.
    """

    def __init__(self, key: Deserializer[Any] | None, value: Deserializer[Any] | None) -> None:
        check_function("key_deserializer", key)
        check_function("value_deserializer", value)
        self._key = key
        self._value = value

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def read(
        self,
        topic_partition: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> tuple[Any, Any]:
        """Return the key and the value of a record.

        Raises:
            RecordDeserializationError: one of them cannot be read.
        """
        read_key: Any = key
        read_value: Any = value
        part = "key"
        try:
            if key is not None and self._key is not None:
                read_key = self._key(key)
            part = "value"
            if value is not None and self._value is not None:
                read_value = self._value(value)
        except Exception as error:  # whatever a program's own function raises
            raise RecordDeserializationError(
                f"the {part} of the record at offset {offset} of {topic_partition} cannot be read:"
                f" {error}",
                (topic_partition, offset),
                (key, value, headers),
            ) from error
        return read_key, read_value
