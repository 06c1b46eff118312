"""What clients take from around them where their programs name none: the network, and chance.

A test in virtual time sets both for its tasks, so that a program runs in it as it is. Everywhere
else they are the operating system's.

Called by: the clients, when they are made.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar

from kraftrio.net.transport import Network, SystemNetwork

network: ContextVar[Callable[[], Network]] = ContextVar("network", default=SystemNetwork)
chance: ContextVar[Callable[[], random.Random]] = ContextVar("chance", default=random.Random)
