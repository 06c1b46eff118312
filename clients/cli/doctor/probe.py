"""One address, tried as a client does it: its name, its port, and who answers there.

Owns `look_up`, `reach` and `identify`. Called by: `examination`.
"""

from __future__ import annotations

import ssl
import struct

import trio

from kraftrio.clients.cli.doctor.symptoms import (
    Cause,
    cause_by_answer,
    cause_of_connecting,
    no_answer,
)

CONNECT_TIMEOUT_S = 4.0
_ANSWER_TIMEOUT_S = 3.0

# ApiVersions, version 0, correlation id 7, no client id: what every broker answers.
_REQUEST = struct.pack(">ihhih", 10, 18, 0, 7, -1)
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")


async def look_up(host: str, port: int) -> list[str] | Cause:
    """Return the addresses of a name, or why there are none."""
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except OSError as error:
        return Cause(
            "name",
            f"the name {host} does not resolve ({error.strerror or error})",
            "check its spelling, or add it to DNS or /etc/hosts",
        )
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def reach(host: str, port: int) -> trio.SocketStream | Cause:
    """Connect, or say why that does not work."""
    subject = f"{host}:{port}"
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        try:
            return await trio.open_tcp_stream(host, port)
        except OSError as error:
            return cause_of_connecting(_first(error), subject)
    return no_answer(subject, CONNECT_TIMEOUT_S)


async def identify(host: str, port: int, *, uses_tls: bool) -> Cause | None:
    """Find out who listens at a port, in plain text and by TLS; None: a broker."""
    stream = await reach(host, port)
    if isinstance(stream, Cause):
        return stream
    answer = b""
    async with stream:
        with trio.move_on_after(_ANSWER_TIMEOUT_S):
            try:
                await stream.send_all(_REQUEST)
                answer = bytes(await stream.receive_some(64))
            except trio.BrokenResourceError:
                answer = b""
    speaks_tls = answer.startswith(_TLS_RECORDS) or (
        not answer.startswith(b"HTTP/") and await _speaks_tls(host, port)
    )
    return cause_by_answer(answer, speaks_tls, uses_tls)


async def _speaks_tls(host: str, port: int) -> bool:
    """Whether the listener takes part in a TLS handshake, even if that fails."""
    stream = await reach(host, port)
    if isinstance(stream, Cause):
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the identity of the listener does not matter here
    secured = trio.SSLStream(stream, context, server_hostname=host)
    with trio.move_on_after(_ANSWER_TIMEOUT_S):
        try:
            await secured.do_handshake()
            return True
        except trio.BrokenResourceError as error:
            cause = error.__cause__
            return isinstance(cause, ssl.SSLError) and "ALERT" in str(cause).upper()
        finally:
            await trio.aclose_forcefully(secured)
    return False


def _first(error: OSError) -> OSError:
    """Return the error of the first address that was tried."""
    cause = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause if isinstance(cause, OSError) else error
