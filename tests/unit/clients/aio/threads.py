"""The clients' threads of this process; other tests may have left threads of Trio's own."""

from __future__ import annotations

import threading


def client_threads() -> list[threading.Thread]:
    """List them."""
    return [one for one in threading.enumerate() if one.name == "kraftrio-clients"]
