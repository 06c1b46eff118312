"""The errors of the clients, under their public name."""

from __future__ import annotations

from kraftrio.clients import errors as _errors
from kraftrio.clients.errors import *  # noqa: F403

__all__ = _errors.__all__
