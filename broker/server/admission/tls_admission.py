"""Lets peers of a listener with TLS in: the handshake, and who shows which certificate.

A handshake has to be done within `HANDSHAKE_S`, the wait for its turn included. What is wrong with
a peer is reported to it by TLS (an alert), and to us by one line of the log.

Called by: `ServerListener`, as the first step of a listener's admission.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

import trio

from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.broker.security.tls.principal_rules import PrincipalRuleError
from kraftrio.broker.server.admission.admission import AdmissionRefused
from kraftrio.broker.server.admission.handshake_slots import HandshakeSlots
from kraftrio.broker.server.context import ClientInfo
from kraftrio.net.security_errors import TlsHandshakeFailed
from kraftrio.net.tls.socket import TlsBuffer, TlsSocket
from kraftrio.net.transport import Network, Socket

HANDSHAKE_S: Final = 10.0


class TlsAdmission:
    """See the module; an `Admission`.

    Args:
        network: waits for the sockets that come.
        context: gives the context in force, which may be another one each time.
        principal_of: who shows this certificate (DER; None: none at all).
    """

    def __init__(
        self,
        network: Network,
        context: Callable[[], ssl.SSLContext],
        principal_of: Callable[[bytes | None], KafkaPrincipal],
        slots: HandshakeSlots,
        *,
        timeout_s: float = HANDSHAKE_S,
    ) -> None:
        self._network = network
        self._context = context
        self._principal_of = principal_of
        self._slots = slots
        self._timeout_s = timeout_s
        self._scratch = TlsBuffer()

    async def admit(self, sock: Socket, client: ClientInfo) -> TlsSocket:
        """Do the server's side of the handshake (see `Admission.admit`)."""
        try:
            with trio.fail_after(self._timeout_s):
                async with self._slots.taken(client.host):
                    tls = TlsSocket(sock, self._context(), self._scratch)
                    await tls.shake_hands(self._network, self._slots.pace)
            client.principal = self._principal_of(tls.peer_certificate)
        except trio.TooSlowError:
            sock.close()
            raise AdmissionRefused(f"no TLS handshake within {self._timeout_s:g} s") from None
        except TlsHandshakeFailed as error:
            sock.close()
            raise AdmissionRefused(f"TLS: {error}") from error
        except (PrincipalRuleError, ValueError) as error:
            sock.close()
            raise AdmissionRefused(f"the certificate of the peer: {error}") from error
        except BaseException:
            sock.close()
            raise
        return tls
