"""The class that a declaration becomes: slots, a constructor by name, equality and a repr.

It is what ``dataclasses.dataclass(slots=True, kw_only=True)`` would make, but a few hundred of
those cost a third of a broker's start: here a constructor is compiled when its class is first
constructed by hand.  Decoders make their objects without it.
"""

from __future__ import annotations

import linecache
from typing import Any

from kraftrio.wire.codec.schema import STRUCT, Field


class Declared:
    """Base of every declared message and struct."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # messages are mutable values

    def __init__(self, **values: Any) -> None:
        """Replace this constructor by the compiled one of the class, and call that."""
        _compile_constructor(type(self))
        type(self).__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names: tuple[str, ...] = self.__slots__
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __repr__(self) -> str:
        names: tuple[str, ...] = self.__slots__
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"


_FIELDS: dict[type[Any], tuple[Field, ...]] = {}


def make_class(cls: type[Any], fields: tuple[Field, ...]) -> type[Any]:
    """Give the class of a declaration its slots; `fields` are in wire order."""
    names = tuple(field.name for field in fields)
    dropped = {*names, "__dict__", "__weakref__"}
    namespace = {name: value for name, value in vars(cls).items() if name not in dropped}
    namespace["__slots__"] = names
    bases = tuple(base for base in cls.__bases__ if base is not object)
    made = type(cls.__name__, (*bases, Declared), namespace)
    _FIELDS[made] = fields
    return made


def _compile_constructor(cls: type[Any]) -> None:
    defaults: dict[str, Any] = {}
    arguments, body = [], []
    for field in _FIELDS[cls]:
        name = field.name
        if isinstance(field.default, list):
            # A nullable array's None is a value of its own: only leaving it out means empty.
            arguments.append(f"{name}=_absent")
            body.append(f" self.{name} = [] if {name} is _absent else {name}")
        elif field.kind is STRUCT and field.default is not None:
            defaults[f"_make_{name}"] = field.element
            arguments.append(f"{name}=_absent")
            body.append(f" self.{name} = _make_{name}() if {name} is _absent else {name}")
        else:
            defaults[f"_default_{name}"] = field.default
            arguments.append(f"{name}=_default_{name}")
            body.append(f" self.{name} = {name}")
    defaults["_absent"] = object()
    parameters = f", *, {', '.join(arguments)}" if arguments else ""
    source = "\n".join([f"def __init__(self{parameters}):", *(body or [" pass"])]) + "\n"
    filename = f"<kraftrio.wire constructor {cls.__name__}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), defaults)
    cls.__init__ = defaults["__init__"]
