"""Every declared message, whatever its family, is read back as it was written."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftrio.wire.codec.message import decode, encode
from tests.unit.wire.random_messages import MESSAGES, random_message, versions_of


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_version_round_trips(cls: type[Any]) -> None:
    """A message with random values decodes to itself in every version."""
    for version in versions_of(cls):
        rng = random.Random(f"{cls.__name__} {version}")
        for _ in range(3):
            message = random_message(cls, version, rng)
            data = encode(message, version)
            assert decode(cls, version, data) == (message, len(data))
