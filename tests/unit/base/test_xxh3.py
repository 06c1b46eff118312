"""XXH3: the values of another implementation, for inputs on both sides of each limit."""

from __future__ import annotations

import pytest

from kraftrio.base.xxh3 import xxh3_64


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 0x2D06800538D394C2),
        (1, 0xC44BDFF4074EECDB),
        (3, 0xC3489259E968AD9E),
        (4, 0xD3D60C1519014E89),
        (8, 0xB88DEE77F6BF6980),
        (9, 0x03688DCAD730D826),
        (16, 0x9DA23836ADF2BE1E),
        (17, 0xF34C3C9CF5A112D1),
        (33, 0xC077B45492D29CDE),
        (64, 0xFAECD52EFFBB854F),
        (128, 0x4C659B745F435148),
        (129, 0xB85222B83902B6E5),
        (160, 0x7B45DA4714C3419F),
        (240, 0xD6DFBF67B0675B54),
        (241, 0xC614C8C3575348C1),
        (1024, 0xF22EF3DC84FF47EA),
        (1025, 0x43F869A83769A435),
        (2049, 0x4583128AFA3A2985),
        (5000, 0xCE29A19460EE1BFC),
    ],
)
def test_values_of_the_reference_implementation(length: int, expected: int) -> None:
    """Of the `xxhash` package; each range of lengths has steps of its own."""
    assert xxh3_64(bytes(i * 7 % 251 for i in range(length))) == expected
