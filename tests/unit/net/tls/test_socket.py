"""Encrypted sockets over sockets in memory: handshakes, bytes in both directions, ends."""

from __future__ import annotations

import contextlib
import random
import re
from typing import Any

import pytest
import trio

from kraftrio.net.security_errors import TlsHandshakeFailed
from kraftrio.net.tls.socket import TlsBuffer, TlsSocket
from tests.security.certificates import Authority, key_store
from tests.unit.net.tls.in_memory import (
    CA,
    CLIENT,
    NETWORK,
    SERVER,
    End,
    Pair,
    ends,
    material,
    received,
)

VERSIONS = ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize("version", VERSIONS)
async def test_both_sides_agree_and_exchange_bytes(version: str) -> None:
    pair = Pair(material(SERVER, CA, enabled_protocols=version))
    await pair.shake_hands()
    assert pair.server.version == pair.client.version == version
    for here, there in ((pair.client, pair.server), (pair.server, pair.client)):
        assert here.send(b"hello") == 5
        assert here.sendmsg([b"a", memoryview(b"bc"), bytearray(b"d" * 40_000)]) == 40_003
        assert received(there) == b"helloabc" + b"d" * 40_000
    assert b"hello" not in bytes(pair.server_end.inbox + pair.client_end.inbox)


async def test_many_records_come_with_one_call() -> None:
    """The socket below is asked once for all that it has, and buffers are filled in turn."""
    pair = Pair()
    await pair.shake_hands()
    data = random.Random(1).randbytes(100_000)
    assert pair.client.send(data) == len(data)
    first, second = bytearray(70_000), bytearray(70_000)
    assert pair.server.recvmsg_into([first, second])[0] == len(data)
    assert bytes(first) + bytes(second[:30_000]) == data
    with pytest.raises(BlockingIOError):
        pair.server.recv_into(first)


async def test_what_waits_decrypted_is_given_before_anybody_waits() -> None:
    """A reader that takes little gets the rest at once: the socket below would not wake it."""
    pair = Pair()
    await pair.shake_hands()
    pair.client.send(b"x" * 50_000)
    small = bytearray(1000)
    counts = []
    while True:
        try:
            counts.append(pair.server.recv_into(small))
        except BlockingIOError:
            break
    assert sum(counts) == 50_000 and set(counts) == {1000}


@pytest.mark.parametrize("seed", range(10))
async def test_bytes_come_through_a_narrow_socket_unchanged(seed: int) -> None:
    """Whatever room there is, and however the sender cuts what it sends again."""
    rng = random.Random(seed)
    pair = Pair()
    await pair.shake_hands()
    data = rng.randbytes(300_000)
    got, at = bytearray(), 0
    while at < len(data) or len(got) < len(data):
        pair.server_end.room_bytes = rng.choice([0, 1, 100, 5000, 1 << 20])
        if at < len(data):
            size = rng.choice([1, 2, 100, 20_000, 200_000])
            pieces = [data[at : at + size // 2], data[at + size // 2 : at + size]]
            with contextlib.suppress(BlockingIOError):
                at += pair.client.sendmsg([one for one in pieces if one])
        else:
            pair.server_end.room_bytes = 1 << 20
            assert pair.client._flush()
        got += received(pair.server, rng.choice([1000, 100_000]))
    assert bytes(got) == data


async def test_bytes_count_as_sent_when_they_are_out() -> None:
    """A peer that has sent all may wait for an answer: nothing is left that nobody would send."""
    pair = Pair()
    await pair.shake_hands()
    pair.server_end.room_bytes = 1000
    assert pair.client.send(b"y" * 5000) == 4999
    with pytest.raises(BlockingIOError):
        pair.client.send(b"y")
    pair.server_end.room_bytes = 1 << 20
    assert pair.client.send(b"y") == 1
    assert received(pair.server) == b"y" * 5000


async def test_one_byte_that_is_stuck_is_not_counted() -> None:
    pair = Pair()
    await pair.shake_hands()
    pair.server_end.room_bytes = 3
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            pair.client.send(b"z")
    pair.server_end.room_bytes = 1000
    assert pair.client.send(b"z") == 1
    assert received(pair.server) == b"z"


async def test_little_is_encrypted_ahead_of_a_full_socket() -> None:
    pair = Pair()
    await pair.shake_hands()
    pair.server_end.room_bytes = 0
    assert pair.client.send(bytes(10 << 20)) < 70_000
    assert pair.client._outgoing.pending + len(pair.client._unsent) < 70_000


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_close_is_said(version: str) -> None:
    """The other side sees an end, not a connection that was cut."""
    pair = Pair(material(SERVER, CA, enabled_protocols=version))
    await pair.shake_hands()
    pair.client.send(b"last")
    before = len(pair.server_end.inbox)
    pair.client.close()
    assert len(pair.server_end.inbox) > before
    assert pair.client_end.is_closed
    assert received(pair.server) == b"last"
    assert pair.server.recv_into(bytearray(10)) == 0
    pair.server.close()
    pair.server.close()


async def test_a_cut_is_an_end_too() -> None:
    """Kafka's frames say how long they are: nothing can be cut off unseen."""
    pair = Pair()
    await pair.shake_hands()
    pair.client_end.close()
    assert pair.server.recv_into(bytearray(10)) == 0


async def test_bytes_that_were_changed_end_the_connection() -> None:
    pair = Pair()
    await pair.shake_hands()
    pair.client.send(b"hello")
    pair.server_end.inbox[-1] ^= 1
    with pytest.raises(ConnectionResetError, match="TLS failed"):
        pair.server.recv_into(bytearray(10))


# -- who is believed -----------------------------------------------------------------------------

REFUSED_SERVERS = {
    "unknown authority": (Authority().server(), "unable to get (local )?issuer"),
    "expired": (CA.expired(), "certificate has expired"),
    "not yet valid": (CA.not_yet_valid(), "certificate is not yet valid"),
    "wrong host": (CA.wrong_host(), "Hostname mismatch"),
}


@pytest.mark.parametrize("fault", REFUSED_SERVERS)
async def test_a_server_that_is_not_believed(fault: str) -> None:
    identity, reason = REFUSED_SERVERS[fault]
    begin = trio.current_time()
    server, client = await Pair(material(identity, CA)).outcomes()
    assert trio.current_time() - begin < 0.9, "they wait for each other"
    assert isinstance(client, TlsHandshakeFailed)
    assert re.search(reason, str(client)), str(client)
    assert isinstance(server, TlsHandshakeFailed)
    assert str(server).startswith("the peer refused: ")


async def test_the_host_counts_only_where_it_is_checked() -> None:
    lax = material(None, CA, endpoint_identification_algorithm="")
    assert await Pair(material(CA.wrong_host(), CA), lax).outcomes() == (None, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_a_certificate_names_addresses_and_hosts(host: str) -> None:
    assert await Pair(host=host).outcomes() == (None, None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wanted", ["required", "requested", "none"])
async def test_certificates_of_clients(wanted: str, version: str) -> None:
    server = material(SERVER, CA, client_auth=wanted, enabled_protocols=version)
    pair = Pair(server, material(CLIENT, CA))
    await pair.shake_hands()
    shown = pair.server.peer_certificate
    assert (shown is None) == (wanted == "none")
    without = Pair(server)
    refused, client = await without.outcomes()
    if wanted != "required":
        assert (refused, client, without.server.peer_certificate) == (None, None, None)
        return
    assert isinstance(refused, TlsHandshakeFailed)
    assert "peer did not return a certificate" in str(refused)
    if version == "TLSv1.2":
        assert isinstance(client, TlsHandshakeFailed)
    else:  # it learns of it with the first bytes that it wants to read
        with pytest.raises(TlsHandshakeFailed, match=r"the peer refused: certificate required"):
            without.client.recv_into(bytearray(10))


@pytest.mark.parametrize("wanted", ["required", "requested"])
async def test_a_client_that_is_not_believed(wanted: str) -> None:
    server = material(SERVER, CA, client_auth=wanted)
    stranger = material(Authority().client("mallory"), CA)
    refused, _ = await Pair(server, stranger).outcomes()
    assert isinstance(refused, TlsHandshakeFailed)
    assert "not accepted" in str(refused)


async def test_versions_without_one_in_common() -> None:
    server = material(SERVER, CA, enabled_protocols="TLSv1.3")
    old = material(None, CA, enabled_protocols="TLSv1.2")
    refused, client = await Pair(server, old).outcomes()
    assert isinstance(refused, TlsHandshakeFailed) and isinstance(client, TlsHandshakeFailed)


async def test_cipher_suites_are_chosen_by_javas_names() -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    pair = Pair(material(SERVER, CA, cipher_suites=suite))
    await pair.shake_hands()
    assert pair.server._tls.cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"  # type: ignore[index]


# -- peers that speak something else -------------------------------------------------------------


async def shaken(end: End) -> OSError:
    """How a server's handshake ends over what has come."""
    server = TlsSocket(end, material(SERVER, CA).server_context(), TlsBuffer())
    with pytest.raises(OSError) as caught:
        await server.shake_hands(NETWORK)
    return caught.value


PLAIN = {
    "Kafka": b"\x00\x00\x00\x21\x00\x12\x00\x04" + bytes(29),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "text": b"hello, is anybody there?",
}


@pytest.mark.parametrize("protocol", PLAIN)
async def test_a_peer_without_tls_is_cut_at_once(protocol: str) -> None:
    """Without an answer, which it would take for one of its own protocol."""
    server_end, client_end = ends()
    client_end.send(PLAIN[protocol])
    begin = trio.current_time()
    failure = await shaken(server_end)
    assert trio.current_time() - begin < 0.5, "it waits for an answer to what it did not say"
    assert isinstance(failure, TlsHandshakeFailed)
    assert str(failure) == "the peer does not speak TLS"
    assert not client_end.inbox


async def test_a_peer_that_goes_within_the_handshake() -> None:
    server_end, client_end = ends()
    client_end.send(b"\x16\x03\x01")
    client_end.close()
    assert isinstance(await shaken(server_end), ConnectionResetError)


async def test_broken_handshakes_raise_nothing_else() -> None:
    """A ClientHello with bytes changed, cut or added, as often as time allows."""
    rng = random.Random(7)
    _, client_end = ends()
    hello = await first_flight()
    for _ in range(100):
        server_end, client_end = ends()
        data = bytearray(hello)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        client_end.send(bytes(data[: rng.randint(1, len(data))]) + rng.randbytes(rng.randint(0, 9)))
        client_end.close()
        failure = await shaken(server_end)
        assert isinstance(failure, TlsHandshakeFailed | ConnectionError), repr(failure)


async def first_flight() -> bytes:
    """What a client sends first."""
    client_end, server_end = ends()
    client = TlsSocket(client_end, material(None, CA).client_context(), TlsBuffer(), "localhost")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.shake_hands, NETWORK)
        while not server_end.inbox:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return bytes(server_end.inbox)


def test_a_context_without_a_certificate_cannot_serve() -> None:
    with pytest.raises(ValueError, match=r"a listener with TLS needs a certificate"):
        material(None, CA).server_context()


def test_a_private_key_leaves_no_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where keys cannot go through memory, either: the file is for its owner, and gone at once."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delattr("os.memfd_create", raising=False)
    key_store(tmp_path, SERVER)
    before = set(tmp_path.iterdir())
    material(SERVER, CA).server_context()
    assert set(tmp_path.iterdir()) == before
