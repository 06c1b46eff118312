"""XXH3 with 64 bits and no seed: a fast hash whose values are stable over versions and machines.

Groups keep such hashes of topics in their records, and compare them after years (KIP-1101).

Source: the XXH3 specification. Long inputs go block by block through C code of the interpreter
(about 25 us for a kilobyte); inputs of up to 240 bytes have paths of their own.
"""

from __future__ import annotations

import struct
from operator import mul

_MASK = (1 << 64) - 1
_MASK_32 = (1 << 32) - 1

_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1 = 0x9E3779B185EBCA87
_PRIME64_2 = 0xC2B2AE3D27D4EB4F
_PRIME64_3 = 0x165667B19E3779F9
_PRIME64_4 = 0x85EBCA77C2B2AE63
_PRIME64_5 = 0x27D4EB2F165667C5
_PRIME_MX1 = 0x165667919E3779F9
_PRIME_MX2 = 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_STRIPES = (len(_SECRET) - _STRIPE) // 8  # in a block
_BLOCK = _STRIPES * _STRIPE

_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_LANES = struct.Struct("<8Q")
_BLOCK_LANES = struct.Struct(f"<{_STRIPES * 8}Q")
_BLOCK_HALVES = struct.Struct(f"<{_STRIPES * 16}I")

_KEYS = b"".join(_SECRET[8 * stripe : 8 * stripe + _STRIPE] for stripe in range(_STRIPES))
_BLOCK_KEY = int.from_bytes(_KEYS, "little")
_SCRAMBLE_KEYS = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
_LAST_STRIPE_OFFSET = len(_SECRET) - _STRIPE - 7
_MERGE_OFFSET = 11
_START = (
    _PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1,
)  # fmt: skip


def xxh3_64(data: bytes) -> int:
    """Return the hash of some bytes, without a sign."""
    length = len(data)
    if length > 240:
        return _hash_long(data)
    if length > 128:
        return _hash_129_to_240(data)
    if length > 16:
        return _hash_17_to_128(data)
    if length > 8:
        return _hash_9_to_16(data)
    if length >= 4:
        return _hash_4_to_8(data)
    if length:
        return _hash_1_to_3(data)
    return _avalanche_xxh64(_secret64(56) ^ _secret64(64))


# --- short inputs ---


def _hash_1_to_3(data: bytes) -> int:
    length = len(data)
    combined = (data[0] << 16) | (data[length >> 1] << 24) | data[-1] | (length << 8)
    flip = _U32.unpack_from(_SECRET, 0)[0] ^ _U32.unpack_from(_SECRET, 4)[0]
    return _avalanche_xxh64(combined ^ flip)


def _hash_4_to_8(data: bytes) -> int:
    first: int = _U32.unpack_from(data, 0)[0]
    last: int = _U32.unpack_from(data, len(data) - 4)[0]
    value = (last + (first << 32)) ^ _secret64(8) ^ _secret64(16)
    value ^= _rotate(value, 49) ^ _rotate(value, 24)
    value = value * _PRIME_MX2 & _MASK
    value ^= (value >> 35) + len(data)
    value = value * _PRIME_MX2 & _MASK
    return value ^ (value >> 28)


def _hash_9_to_16(data: bytes) -> int:
    low = _u64(data, 0) ^ _secret64(24) ^ _secret64(32)
    high = _u64(data, len(data) - 8) ^ _secret64(40) ^ _secret64(48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche(len(data) + swapped + high + _folded_product(low, high))


def _hash_17_to_128(data: bytes) -> int:
    length = len(data)
    total = length * _PRIME64_1
    for step in reversed(range((length - 1) // 32 + 1)):
        total += _mix16(data, 16 * step, 32 * step)
        total += _mix16(data, length - 16 * (step + 1), 32 * step + 16)
    return _avalanche(total)


def _hash_129_to_240(data: bytes) -> int:
    length = len(data)
    total = length * _PRIME64_1
    for step in range(8):
        total += _mix16(data, 16 * step, 16 * step)
    total = _avalanche(total)
    for step in range(8, length // 16):
        total += _mix16(data, 16 * step, 16 * (step - 8) + 3)
    total += _mix16(data, length - 16, 136 - 17)
    return _avalanche(total)


# --- long inputs ---


def _hash_long(data: bytes) -> int:
    lanes = list(_START)
    block_count = (len(data) - 1) // _BLOCK
    for block in range(block_count):
        _add_block(lanes, data, block * _BLOCK)
        for lane, key in enumerate(_SCRAMBLE_KEYS):
            value = lanes[lane] & _MASK
            lanes[lane] = (value ^ (value >> 47) ^ key) * _PRIME32_1 & _MASK
    start = block_count * _BLOCK
    for stripe in range((len(data) - 1 - start) // _STRIPE):
        _add_stripe(lanes, data, start + stripe * _STRIPE, 8 * stripe)
    _add_stripe(lanes, data, len(data) - _STRIPE, _LAST_STRIPE_OFFSET)
    total = len(data) * _PRIME64_1
    for pair in range(4):
        low = (lanes[2 * pair] & _MASK) ^ _secret64(_MERGE_OFFSET + 16 * pair)
        high = (lanes[2 * pair + 1] & _MASK) ^ _secret64(_MERGE_OFFSET + 16 * pair + 8)
        total += _folded_product(low, high)
    return _avalanche(total)


def _add_block(lanes: list[int], data: bytes, start: int) -> None:
    """Add a whole block: per lane the sum of its products, and of its neighbour's data."""
    values = _BLOCK_LANES.unpack_from(data, start)
    keyed = int.from_bytes(data[start : start + _BLOCK], "little") ^ _BLOCK_KEY
    halves = _BLOCK_HALVES.unpack(keyed.to_bytes(_BLOCK, "little"))
    products = list(map(mul, halves[0::2], halves[1::2]))
    for lane in range(8):
        lanes[lane] += sum(products[lane::8]) + sum(values[lane ^ 1 :: 8])


def _add_stripe(lanes: list[int], data: bytes, start: int, secret_offset: int) -> None:
    values = _LANES.unpack_from(data, start)
    keys = _LANES.unpack_from(_SECRET, secret_offset)
    for lane in range(8):
        keyed = values[lane] ^ keys[lane]
        lanes[lane] += values[lane ^ 1] + (keyed & _MASK_32) * (keyed >> 32)


# --- steps ---


def _u64(data: bytes, offset: int) -> int:
    value: int = _U64.unpack_from(data, offset)[0]
    return value


def _secret64(offset: int) -> int:
    return _u64(_SECRET, offset)


def _mix16(data: bytes, offset: int, secret_offset: int) -> int:
    low = _u64(data, offset) ^ _secret64(secret_offset)
    high = _u64(data, offset + 8) ^ _secret64(secret_offset + 8)
    return _folded_product(low, high)


def _folded_product(first: int, second: int) -> int:
    product = first * second
    return (product & _MASK) ^ (product >> 64)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _avalanche(value: int) -> int:
    value &= _MASK
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ (value >> 32)


def _avalanche_xxh64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64_2 & _MASK
    value ^= value >> 29
    value = value * _PRIME64_3 & _MASK
    return value ^ (value >> 32)
