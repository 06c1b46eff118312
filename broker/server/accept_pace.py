"""How fast a broker accepts connections: max.connection.creation.rate (KIP-612).

Owns: `AcceptPace`, shared by the listeners of a broker. Who comes too fast waits in the system's
queue. What is allowed within `BURST_S` may come at once.

Sans-IO: time comes in. Called by: `server`.
"""

from __future__ import annotations

import math
from typing import Final

BURST_S: Final = 1.0


class AcceptPace:
    """See the module.

    Attributes:
        rate: connections a second; may change.
    """

    def __init__(self, rate: float = math.inf) -> None:
        self.rate = rate
        self._paid_until_s = -math.inf  # what came so far is what the rate allows up to then

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next connection is accepted."""
        if self.rate <= 0:
            return math.inf
        return max(0.0, self._paid_until_s + 1 / self.rate - now_s - BURST_S)

    def accepted(self, now_s: float) -> None:
        """Note that one came."""
        self._paid_until_s = max(self._paid_until_s, now_s) + 1 / self.rate
