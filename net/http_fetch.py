"""Gets what a URL stands for, in the thread that calls: tokens and keys of an identity provider.

Owns: `fetch`. Rules: each read waits for a limited time, takes a limited number of bytes, and
follows no redirection, which would get what is secret. Who the peer is, is checked with the
system's certificates. What was answered is in no error.

Called in worker threads by: `net/sasl/bearer_tokens`, and by the broker for a provider's keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_BYTES: Final = 1 << 20


class FetchError(Exception):
    """The URL gave nothing; the message is one sentence."""


def fetch(
    url: str,
    *,
    timeout_s: float,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return what a file: or http: or https: URL stands for.

    Args:
        body: what to POST; None: GET.

    Raises:
        FetchError: it cannot be had, or is larger than MAX_BYTES.
    """
    if not url.startswith(("file:", "http://", "https://")):
        raise FetchError(f"{url!r} is no URL of a file, http or https")
    # Loaded only where something is fetched.
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    class NoRedirection(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_redirection: Any) -> None:
            return None

    sent = {"Accept": "application/json", **(headers or {})}
    try:
        request = urllib.request.Request(url, body, sent)
        opener = urllib.request.build_opener(NoRedirection)
        with opener.open(request, timeout=timeout_s) as answer:
            data: bytes = answer.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise FetchError(f"{url} answers with status {error.code}") from error
    except urllib.error.URLError as error:
        raise FetchError(f"{url} cannot be read: {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(f"{url} cannot be read: {error or type(error).__name__}") from error
    if len(data) > MAX_BYTES:
        raise FetchError(f"{url} gives more than {MAX_BYTES} bytes")
    return data
