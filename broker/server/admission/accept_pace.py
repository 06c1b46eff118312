"""How fast a broker accepts connections: max.connection.creation.rate (KIP-612).

Owns: `AcceptPace`, shared by the listeners of a broker. Connections that come too fast wait in the
system's queue. A burst may use up what the rate allows in `BURST_S`.

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
        self._used_until_s = -math.inf  # the rate allows what came so far by then

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next connection is accepted."""
        if self.rate <= 0:
            return math.inf
        return max(0.0, self._used_until_s + 1 / self.rate - now_s - BURST_S)

    def accepted(self, now_s: float) -> None:
        """Note that one came."""
        self._used_until_s = max(self._used_until_s, now_s) + 1 / self.rate
