"""The name that a member gives itself: a random UUID, as Kafka writes them (KIP-1082)."""

from __future__ import annotations

import base64
import random


def new_member_id(rng: random.Random) -> str:
    """Return a new id, 22 characters long."""
    raw = bytearray(rng.randbytes(16))
    raw[6] = raw[6] & 0x0F | 0x40  # version 4, random
    raw[8] = raw[8] & 0x3F | 0x80
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
