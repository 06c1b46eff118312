"""What clients take from around them where their programs name none: network, chance, numbers.

A test in virtual time sets them for its tasks, so that a program runs in it as it is, and the same
each time. Everywhere else they are the operating system's, and the process's.

Called by: the clients, when they are made.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from kraftrio.net.transport import Network, SystemNetwork

network: ContextVar[Callable[[], Network]] = ContextVar("network", default=SystemNetwork)
chance: ContextVar[Callable[[], random.Random]] = ContextVar("chance", default=random.Random)
# Of client ids, which distinguish the clients of a program.
numbers: ContextVar[Iterator[int]] = ContextVar("numbers", default=itertools.count(1))  # noqa: B039
