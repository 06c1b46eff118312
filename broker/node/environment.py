"""What a node takes from the outside world, in one value.

Owns: `Environment`. Rules: nothing in a node opens files or sockets, reads a clock, draws random
numbers or starts threads but through it, so that a simulation can run whole nodes, with the code
that runs in production, in virtual time on disks and networks in memory.

Called by: `node`, which hands the parts on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kraftrio.base.clock import Clock
from kraftrio.base.threads import RunInThread, run_in_worker_thread
from kraftrio.broker.log.files import FileSystem, OsFileSystem
from kraftrio.net.transport import Network, SystemNetwork


@dataclass(frozen=True, slots=True)
class Environment:
    """Files, clocks, randomness, network and threads of one node.

    Attributes:
        has_threads: whether a part of a node may run beside its event loop for good.
        freeze_objects: takes the objects that there are out of the garbage collector's sight
            (see `base/live_objects`).
    """

    fs: FileSystem = field(default_factory=OsFileSystem)
    clock: Clock = field(default_factory=Clock)
    rng: random.Random = field(default_factory=random.SystemRandom)
    network: Network = field(default_factory=SystemNetwork)
    run_in_thread: RunInThread = run_in_worker_thread
    has_threads: bool = False
    freeze_objects: Callable[[], None] = lambda: None
