"""What happens to a connection between its accept and its first request: TLS, then the login.

Owns: the port `Admission`, `AdmissionRefused`, and `AdmissionSteps`, which does several one after
the other. Rules
1. It runs in the connection's own task: neither a slow peer nor a flood of them holds up accepting,
   or each other.
2. It owns the socket that it is given: it returns one to serve, or has closed it, also when it is
   cancelled.
3. It sets what it learns of the peer in the `ClientInfo`: its principal, above all. The listener
   serves nothing before it has returned.
4. It bounds itself, in time, in bytes held for a peer, and in peers at a time.

Called by: `ServerListener`, for a listener whose security protocol is not PLAINTEXT.
"""

from __future__ import annotations

from typing import Protocol

from kraftrio.broker.server.context import ClientInfo
from kraftrio.net.transport import Socket


class AdmissionRefused(Exception):
    """The peer is not let in; the text says why, for the log, on one line.

    Attributes:
        mechanism: by which it tried to log in; None: it did not come to that.
    """

    def __init__(self, reason: str, mechanism: str | None = None) -> None:
        super().__init__(reason)
        self.mechanism = mechanism


class Admission(Protocol):
    """Lets peers in, or not; see the module."""

    async def admit(self, sock: Socket, client: ClientInfo) -> Socket:
        """Find out who a peer is.

        Args:
            client: gets what is learnt of it.

        Returns:
            The socket over which requests come.

        Raises:
            AdmissionRefused: it is not let in.
            OSError: the connection was lost.
        """


class AdmissionSteps:
    """Several admissions: each goes on with the socket that the one before returned."""

    def __init__(self, *steps: Admission) -> None:
        self._steps = steps

    async def admit(self, sock: Socket, client: ClientInfo) -> Socket:
        """Do all steps (see `Admission.admit`)."""
        for step in self._steps:
            sock = await step.admit(sock, client)
        return sock
