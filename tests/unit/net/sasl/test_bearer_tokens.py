"""Where tokens come from: options, files, and a provider that is asked again in time."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kraftrio.base.threads import run_in_worker_thread
from kraftrio.net.sasl.bearer_tokens import token_source, unsecured_claims
from kraftrio.net.security_errors import LoginRefused
from kraftrio.wire.sasl.jws import encode_unsecured, parse_jws

URL = "sasl.oauthbearer.token.endpoint.url"
NOW_MS = 1_700_000_000_000
CLIENT = {"clientId": "me", "clientSecret": "s:cret", "scope": "a b"}


async def token_of(options: dict[str, str], settings: dict[str, str]) -> str:
    source, _ = token_source(options, settings, lambda: NOW_MS)
    return (await source.token(run_in_worker_thread)).reveal()


class Provider(BaseHTTPRequestHandler):
    """Answers as a test says."""

    status, answer = 200, b"{}"
    seen: list[tuple[str, str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    do_GET = do_POST

    def log_message(self, *_line: Any) -> None:
        pass


@contextmanager
def provider(status: int = 200, answer: bytes = b"{}") -> Iterator[tuple[str, type[Provider]]]:
    handler = type("Handler", (Provider,), {"status": status, "answer": answer, "seen": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", handler
        server.shutdown()
        thread.join()


async def test_an_unsecured_token_claims_what_options_say() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginNumberClaim_n": "1.5",
        "unsecuredLoginListClaim_scope": ",a,b",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    token = parse_jws(await token_of(options, {}))
    assert token.algorithm == "none"
    assert dict(token.claims) == {
        "exp": NOW_MS / 1000 + 60,
        "iat": NOW_MS / 1000,
        "sub": "alice",
        "n": 1.5,
        "scope": ["a", "b"],
    }


@pytest.mark.parametrize(
    "options",
    [
        {"unsecuredLoginNumberClaim_n": "x"},
        {"unsecuredLoginStringClaim_exp": "1"},
    ],
)
def test_claims_that_cannot_be(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="unsecured token"):
        unsecured_claims(options)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "x"}, {}),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginExtension_auth": "x"}, {}),
        ({**CLIENT, "extension_1": "x"}, {URL: "https://idp"}),
        (CLIENT, {URL: "ftp://idp"}),
        ({"clientId": "me"}, {URL: "https://idp"}),
    ],
)
def test_sources_that_cannot_be(options: dict[str, str], settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        token_source(options, settings, lambda: NOW_MS)


async def test_a_token_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(encode_unsecured({"exp": 1}) + "\n")
    assert await token_of({}, {URL: path.as_uri()}) == encode_unsecured({"exp": 1})
    with pytest.raises(LoginRefused, match="no token to log in with"):
        await token_of({}, {URL: (tmp_path / "none").as_uri()})


async def test_a_provider_is_asked_when_most_of_a_token_s_life_is_over() -> None:
    token = encode_unsecured({"exp": NOW_MS / 1000 + 100})
    now = [NOW_MS]
    with provider(answer=json.dumps({"access_token": token}).encode()) as (url, handler):
        source, extensions = token_source(
            {**CLIENT, "extension_a": "b"}, {URL: url}, lambda: now[0]
        )
        assert extensions == {"a": "b"}
        for after_s, asked in ((0, 1), (79, 1), (80, 2)):
            now[0] = NOW_MS + after_s * 1000
            assert (await source.token(run_in_worker_thread)).reveal() == token
            assert len(handler.seen) == asked
    path, identity, body = handler.seen[0]
    assert (path, body) == ("/token", b"grant_type=client_credentials&scope=a+b")
    assert b64decode(identity.removeprefix("Basic ")) == b"me:s:cret"


@pytest.mark.parametrize(
    ("status", "answer"),
    [(500, b""), (200, b"{}"), (200, b"["), (200, b'{"access_token": "odd"}'), (302, b"")],
)
async def test_a_provider_that_gives_no_token(status: int, answer: bytes) -> None:
    """A redirection is not followed: it would be sent the secret."""
    with provider(status, answer) as (url, handler):
        with pytest.raises(LoginRefused) as refused:
            await token_of(CLIENT, {URL: url})
        assert len(handler.seen) == 1
    assert "s:cret" not in str(refused.value)
