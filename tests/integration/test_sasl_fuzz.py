"""Fuzzed frames before a login: no client gets in by them, memory is bounded, and others log in."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from pathlib import Path

import pytest
import trio

from kraftrio.wire.messages.cluster import MetadataRequest
from tests.integration.sasl_broker import SaslBroker, plain, scram
from tests.integration.test_fuzz import rss_mb

FRAMES = 100_000
CONNECTIONS = 64
MAX_RSS_MB = 150
MARK = 0x7ABBCCDD  # the correlation id of requests that may not be answered


def header(key: int, version: int, correlation_id: int = 1) -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, 2) + b"me"


def handshake(mechanism: bytes, version: int = 1) -> bytes:
    return header(17, version) + struct.pack(">h", len(mechanism)) + mechanism


def authenticate(token: bytes, version: int = 1) -> bytes:
    return header(36, version) + struct.pack(">i", len(token)) + token


SCRAM_FIRST = b"n,,n=alice,r=abcdefghij"
SCRAM_FINAL = b"c=biws,r=abcdefghij,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


class Maker:
    """Makes what a connection sends before a login, or instead of it."""

    def __init__(self, rng: random.Random, token: str) -> None:
        self.rng = rng
        self.bearer = b"n,,\x01auth=Bearer " + token.encode() + b"x\x01\x01"

    def frames(self) -> list[bytes]:
        rng = self.rng
        versions = header(18, rng.choice((0, 0, 3, 99)))
        mechanism, tokens = rng.choice(
            (
                (b"PLAIN", [b"\0admin\0wrong"]),
                (b"PLAIN", [b"admin\0admin\0admin-secre"]),
                (b"SCRAM-SHA-256", [SCRAM_FIRST, SCRAM_FINAL]),
                (b"SCRAM-SHA-512", [SCRAM_FIRST + b",tokenauth=true", SCRAM_FINAL]),
                (b"OAUTHBEARER", [self.bearer, b"\x01"]),
                (b"GSSAPI", [b"\x60\x82"]),
            )
        )
        bare = rng.random() < 0.3
        frames = [handshake(mechanism, 0 if bare else 1)]
        if rng.random() < 0.5:
            frames.insert(0, versions)
        for token in tokens:
            if rng.random() < 0.3:
                token = self.mutated(token)
            frames.append(token if bare else authenticate(token, rng.randrange(2)))
        if rng.random() < 0.3:
            at = rng.randrange(len(frames))
            frames[at] = self.mutated(frames[at])
        frames.append(header(3, 0, MARK) + struct.pack(">i", 0))
        framed = [struct.pack(">i", len(frame)) + frame for frame in frames]
        if rng.random() < 0.02:
            framed.append(struct.pack(">i", rng.choice((-1, 524_288, 524_289, 1 << 30))))
        return framed

    def mutated(self, frame: bytes) -> bytes:
        """Change, remove, repeat or insert some bytes."""
        rng, data = self.rng, bytearray(frame)
        for _ in range(rng.randrange(1, 4)):
            kind, at = rng.randrange(5), rng.randrange(len(data) + 1)
            if kind == 0:
                data[at:at] = rng.randbytes(rng.choice((1, 4, 300, 40_000)))
            elif kind == 1:
                del data[at : at + rng.randrange(1, 9)]
            elif kind == 2 and data:
                data[at % len(data)] = rng.randrange(256)
            elif kind == 3:
                data += data[:at]
            else:
                data[at:at] = rng.choice((b"\0", b",", b"=", b"\x01", b"\xff" * 4, b"e" * 4000))
        return bytes(data[:100_000])


class Attack:
    """Counts the frames that were sent, and the answers to requests that need a login."""

    def __init__(self, maker: Maker, address: tuple[str, int]) -> None:
        self.maker = maker
        self.address = address
        self.left = FRAMES
        self.let_in = 0
        self.refused = 0

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(self.attack)

    async def attack(self) -> None:
        while self.left > 0:
            frames = self.maker.frames()
            self.left -= len(frames)
            stream = await trio.open_tcp_stream(*self.address)
            async with stream:
                answer = bytearray()
                # It may be refused, and closed, before it has said everything.
                with contextlib.suppress(trio.BrokenResourceError):
                    await stream.send_all(b"".join(frames))
                    await stream.send_eof()
                with contextlib.suppress(trio.BrokenResourceError):
                    while data := await stream.receive_some():
                        answer += data
            self.let_in += struct.pack(">i", MARK) in answer
            self.refused += b"Authentication failed" in answer


@pytest.mark.timeout(600)
def test_100_000_fuzzed_frames_before_a_login(tmp_path: Path) -> None:
    seed = int(os.environ.get("FUZZ_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    with SaslBroker(tmp_path, connection_failed_authentication_delay_ms=0) as broker:
        maker = Maker(random.Random(seed), broker.token())
        attack = Attack(maker, (broker.host, broker.port))
        logins = 0

        async def log_in() -> None:
            """A client that may, now and then."""
            nonlocal logins
            while attack.left > 0:
                settings = plain("admin", "admin-secret") if logins % 2 else scram(
                    "alice", "alice-secret"
                )  # fmt: skip
                with trio.fail_after(10):
                    async with broker.connection(settings) as connection:
                        await connection.call(MetadataRequest(topics=[]), 9, 10)
                logins += 1
                assert rss_mb(broker) < MAX_RSS_MB
                await trio.sleep(0.1)

        async def both() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log_in)
                await attack.run()

        trio.run(both)
        assert attack.let_in == 0
        assert attack.refused > FRAMES / 100
        assert logins > 3
        text = broker.log_text()
        assert "admission failed" not in text and "admin-secret" not in text
        assert len(text) < 100_000, "refusals fill the log"
