"""Who sends a request: `KafkaPrincipal`, a value that a listener gives each connection."""

from __future__ import annotations

from typing import Final, NamedTuple


class KafkaPrincipal(NamedTuple):
    """A user, or another kind of identity; its text is what ACLs and super.users name."""

    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """Return the principal that a text names; ValueError if it has no type."""
        kind, colon, name = text.partition(":")
        if not colon:
            raise ValueError(f"{text!r} is not a principal: expected TYPE:NAME")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal("User", "ANONYMOUS")
"""Every client of a listener without authentication."""
