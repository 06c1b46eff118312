"""Why a connection cannot be used though the peer listens: TLS, or the login, has failed.

Owns: `SecurityError` and its kinds. They are OSErrors, since they come from where sockets are
connected and read; `net/connection` turns them into losses of its own kind. Trying again changes
nothing before a certificate, a password or a setting has changed.

Raised by: what `SecuredNetwork` is given, and the sockets that this makes.
"""

from __future__ import annotations


class SecurityError(OSError):
    """One side did not accept the other; the text is one sentence."""


class TlsHandshakeFailed(SecurityError):
    """The two sides did not agree on TLS, or one did not trust the other's certificate."""


class LoginRefused(SecurityError):
    """The peer did not accept who this side says it is (SASL)."""
