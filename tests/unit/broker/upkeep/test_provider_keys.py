"""The keys of identity providers: read, read again in time, and again when a new key is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from kraftrio.broker.security.sasl.settings import KeySource
from kraftrio.broker.security.sasl.signed_tokens import JsonWebKeys
from kraftrio.broker.upkeep.provider_keys import ProviderKeys
from tests.unit.broker.security.sasl.test_signed_tokens import es_jwk


class Disk:
    """A file with keys, and how often it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads: list[float] = []

    async def run(self, work: Callable[[], object]) -> None:
        self.reads.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        work()

    def write(self, *key_ids: str) -> None:
        self.path.write_text(json.dumps({"keys": [es_jwk(kid=name) for name in key_ids]}))

    def source(self) -> KeySource:
        prefix = "sasl.oauthbearer.jwks.endpoint."
        times = {"refresh.ms": "60000", "retry.backoff.ms": "1000", "retry.backoff.max.ms": "3000"}
        settings = {prefix + name: text for name, text in times.items()}
        return KeySource(self.path.as_uri(), JsonWebKeys(), settings)


async def test_keys_are_read_again_in_time_and_when_a_new_one_is_named(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    disk = Disk(tmp_path / "keys")
    disk.write("one")
    source = disk.source()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ProviderKeys([source], disk.run).run)
        await trio.sleep(1)
        assert len(source.keys.candidates("one", "ES256")) == 1
        disk.write("one", "two")
        for _ in range(100):
            assert source.keys.candidates("two", "ES256") == []
        await trio.sleep(10)
        assert len(source.keys.candidates("two", "ES256")) == 1
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    began = disk.reads[0]
    assert [round(at - began) for at in disk.reads] == [0, 10, 70]


async def test_what_cannot_be_read_leaves_the_keys_and_is_tried_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path / "keys")
    disk.write("one")
    source = disk.source()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ProviderKeys([source], disk.run).run)
        await trio.sleep(59)
        disk.path.write_text("{}")
        await trio.sleep(2)
        assert len(source.keys) == 1
        await trio.sleep(5.5)
        disk.write("one", "two")
        await trio.sleep(3)
        assert len(source.keys) == 2
        nursery.cancel_scope.cancel()
    assert [round(at - disk.reads[0]) for at in disk.reads] == [0, 60, 61, 63, 66, 69]
    assert "the set of keys has no list of keys" in caplog.text
