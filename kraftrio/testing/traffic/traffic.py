"""The frames between the clients of a test and its nodes, for observers and for faults.

Owns: `WatchedConnection`, one connection of a client with a node, and `Traffic`, whose listeners
are called with every frame on it. Rules:
1. Requests between nodes are left out.
2. Watchers see a frame before it goes on, so that they may still keep it from going on.
3. What the test itself asks for comes from the machine `TEST_MACHINE`.

Called by: `explaining.exchanges` and `faults.requests`; `simulated` and `tapped` make it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from kraftrio.broker.server.context import RequestContext

PROGRAM: Final = "program"  # the machine of the program under test; in links, all of its machines
TEST_MACHINE: Final = "test"
TEST_CLIENT_ID: Final = "kraftrio-testing"


class WatchedConnection(ABC):
    """One connection of a client with a node.

    Attributes:
        number: distinguishes the connections of a run.
        machine, node: its two ends, such as "program" and "n1".
    """

    number: int
    machine: str
    node: str

    @abstractmethod
    def lose_answers(self, frame: bytes, after_s: float) -> None:
        """Let what the node answers from now on be lost, and the connection break a while after
        that to a request.
        """

    @abstractmethod
    def hold_up(self, seconds: float) -> None:
        """Let what the client sends, from the present frame on, come so much later."""

    @abstractmethod
    def send_again(self, frame: bytes, after_s: float) -> None:
        """Send a request once more, by a connection of its own; its answer is dropped."""


OnFrame = Callable[[WatchedConnection, bytes], object]


class Traffic(ABC):
    """See the module.

    Attributes:
        on_sent, on_reached: called with each request, as it is sent and as it comes to its node.
        on_answered, on_arrived: called with each answer, as it is sent and as it comes back.
    """

    def __init__(self) -> None:
        self.on_sent: list[OnFrame] = []
        self.on_reached: list[OnFrame] = []
        self.on_answered: list[OnFrame] = []
        self.on_arrived: list[OnFrame] = []

    def notify(self, listeners: list[OnFrame], connection: WatchedConnection, frame: bytes) -> None:
        """Call listeners with a frame."""
        for listener in listeners:
            listener(connection, frame)

    @abstractmethod
    def now_s(self) -> float:
        """The seconds since the run began."""

    @abstractmethod
    def note(self, kind: str, text: str) -> None:
        """Write a line of the story about what happens to all."""

    @abstractmethod
    def is_one(self, machine: str, name: str) -> bool:
        """Whether a machine is meant by a name."""

    @abstractmethod
    def check_client(self, name: str) -> None:
        """Raise ValueError if no client can be meant by a name; the text says which can."""

    @abstractmethod
    def sender(self, context: RequestContext) -> str | None:
        """Which machine sent a request that a node is to handle; None: another node's."""
