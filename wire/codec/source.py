"""Python source of one compiled function: its lines, the names that it uses, fresh local names.

The two code writers, `decoder` and `encoder`, extend it. Rules of the code they write:

1. A run of fixed-size fields, together with the length that follows it, is one ``struct`` call.
   A single-byte unsigned varint is part of the run; longer ones take a slow path.
2. Nested structs are inlined, so one message is one function without calls to others of ours.
3. No slice is taken before its end was compared with the end of the buffer: slices silently
   truncate. An array's count may not exceed what the bytes left could hold.
4. Decoders raise ``struct.error``, ``IndexError``, ``UnicodeDecodeError`` for what ends too early
   or is no UTF-8; ``codec.decode`` turns them into ``RemoteProtocolError``. Encoders raise the
   usual errors of wrong values; ``codec.encode`` turns them into ``LocalProtocolError``.
"""

from __future__ import annotations

import linecache
from struct import Struct
from typing import Any

from kraftrio.wire.codec.schema import Field

MAX_STRING_BYTES = 0x7FFF
KEPT_COUNTS = 64
"""Arrays of numbers with up to so many elements keep their compiled struct."""


class Source:
    """Lines of source, the names they use, and fresh local names."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def local(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: object) -> str:
        """Return a global name for ``value``, the same one when it is the same object."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def packer(self, method: str, code: str) -> str:
        name = f"{method}_{code.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(Struct(">" + code), method)
        return name

    def compile(self, head: str, what: str) -> Any:
        source = "\n".join([head, *self._lines]) + "\n"
        filename = f"<kraftrio.wire {what}>"
        # In linecache a traceback shows the generated lines.
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec"), self.names)
        return self.names["run"]

    def is_compact(self, field: Field) -> bool:
        if field.flexible is not None:
            return self.version in field.flexible
        return self.flexible
