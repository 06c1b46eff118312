"""What URLs stand for, and what cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftrio.net.http_fetch import MAX_BYTES, FetchError, fetch
from kraftrio.net.transport import SystemNetwork


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"x" * MAX_BYTES)
    assert len(fetch(path.as_uri(), timeout_s=1)) == MAX_BYTES
    path.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(FetchError, match="more than"):
        fetch(path.as_uri(), timeout_s=1)


def test_what_cannot_be_had(tmp_path: Path) -> None:
    with SystemNetwork().bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        silent = f"http://127.0.0.1:{port}/"
        with pytest.raises(FetchError, match="cannot be read"):
            fetch(silent, timeout_s=0.05)
    for url in (silent, (tmp_path / "none").as_uri(), "ftp://h/", "http://[", "http://h:x/"):
        with pytest.raises(FetchError):
            fetch(url, timeout_s=0.5)
