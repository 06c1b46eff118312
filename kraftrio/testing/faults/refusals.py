"""What cannot be done to a node or a link as things are: a sentence that says what to do first.

Each is a ValueError. Pure. Called by: `on_demand` and `on_sockets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kraftrio.broker.config.config import BrokerConfig


class AnyNode(Protocol):
    """A node in virtual time, or one with real sockets."""

    config: BrokerConfig

    @property
    def is_running(self) -> bool: ...

    @property
    def is_paused(self) -> bool: ...


def check_running(node: AnyNode, verb: str) -> None:
    """Refuse what needs a node that runs; `verb` is what was to be done to it ("killed")."""
    if not node.is_running:
        raise ValueError(f"{_name(node)} cannot be {verb}, it does not run: start() it first")


def check_goes_on(node: AnyNode, verb: str) -> None:
    """Refuse what a paused node cannot do; `verb` as for `check_running`."""
    if node.is_paused:
        raise ValueError(f"{_name(node)} cannot be {verb}, it is paused: resume() or kill() it")


def check_ended(node: AnyNode) -> None:
    """Refuse to start a node that runs."""
    if node.is_running:
        raise ValueError(f"{_name(node)} runs already: kill() or stop() it first")


def check_paused(node: AnyNode) -> None:
    """Refuse to resume a node that is not paused."""
    if not node.is_paused:
        raise ValueError(f"{_name(node)} is not paused: pause() it first")


def check_machines(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names of machines that are not there."""
    known = list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"there is no machine {name!r}: there are {', '.join(known)}")


def _name(node: AnyNode) -> str:
    return f"node {node.config.node_id}"
