"""A text that nothing may show: a password, or a private key.

Owns: `Secret`. Rule: it is read by `reveal` alone, at the place that hands it to a library or to a
peer; in a log line, a repr or an error it is `[hidden]`, as in Kafka.

Called by: settings of TLS and SASL, of brokers and clients.
"""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"


class Secret:
    """See the module; two secrets of the same text are equal."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__
