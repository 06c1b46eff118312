"""Arguments of tests, checked when they are given: seconds, settings, names of the protocol.

A wrong type is a TypeError, an impossible value a ValueError; each says what was given and
what is wanted. Pure. Called by: what tests call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftrio.clients.arguments.nearest import nearest
from kraftrio.clients.arguments.values import config_value

_OF_THE_CLUSTER: Final = frozenset(
    {
        "node.id",
        "process.roles",
        "listeners",
        "controller.listener.names",
        "controller.quorum.voters",
    }
)


def seconds(name: str, given: Any, *, is_signed: bool = False) -> float:
    """Return a number of seconds.

    Args:
        is_signed: it may be negative.

    Raises:
        TypeError: it is not a number.
        ValueError: it is negative, or not a number (NaN).
    """
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {given!r}")
    if not (given >= 0 or (is_signed and given < 0)):
        raise ValueError(f"{name} must be a number of seconds, 0 or more, but is {given}")
    return given


def node_config(config: Mapping[str, object] | None) -> dict[str, str]:
    """Return properties of nodes as server.properties has them; None is left out.

    Raises:
        ValueError: a property is one that differs from node to node, so that the cluster sets it.
        TypeError: no property can have that value.
    """
    properties = {}
    for name, given in (config or {}).items():
        if name in _OF_THE_CLUSTER:
            raise ValueError(f"config: {name!r} is set by the cluster for each node: leave it out")
        value = config_value(name, given)
        if value is not None:
            properties[name] = value
    return properties


def known_name(what: str, name: object, names: Sequence[str], example: str) -> str:
    """Return a name that is one of several.

    Raises:
        ValueError: it is none of them; the text names the nearest one, or else the example.
    """
    if isinstance(name, str) and name in names:
        return name
    near = nearest(name, names) if isinstance(name, str) else None
    instead = f"do you mean {near!r}?" if near else f"an example is {example!r}"
    raise ValueError(f"there is no {what} {name!r}; {instead}")
