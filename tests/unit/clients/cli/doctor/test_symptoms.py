"""What failures mean: by the sentences of systems and TLS libraries, and by what answers."""

from __future__ import annotations

import errno

import pytest

from kraftrio.clients.cli.doctor.symptoms import (
    Status,
    cause_by_answer,
    cause_of_connecting,
    cause_of_handshake,
    cause_of_login,
    skew_finding,
)


@pytest.mark.parametrize(
    ("sentence", "check", "word"),
    [
        ("certificate verify failed: certificate has expired", "certificate", "has expired"),
        ("certificate verify failed: certificate is not yet valid", "certificate", "not valid yet"),
        ("certificate verify failed: Hostname mismatch", "certificate", "another name"),
        ("self-signed certificate in certificate chain", "certificate", "not trusted"),
        ("unable to get local issuer certificate", "certificate", "not trusted"),
        ("tlsv13 alert certificate required", "certificate", "wants one"),
        ("wrong version number", "tls", "does not speak TLS"),
        ("something new", "tls", "something new"),
    ],
)
def test_handshakes(sentence: str, check: str, word: str) -> None:
    cause = cause_of_handshake(sentence)
    assert (cause.check, word in cause.found, bool(cause.remedy)) == (check, True, True)


def test_logins() -> None:
    assert "sasl.mechanism" in cause_of_login("no such mechanism: X").remedy
    assert "password" in cause_of_login("Authentication failed").remedy


def test_connecting() -> None:
    refused = cause_of_connecting(ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "a:1")
    assert "nobody listens at a:1" in refused.found
    away = cause_of_connecting(OSError(errno.EHOSTUNREACH, "No route to host"), "a:1")
    assert "there is no way to a:1" in away.found


@pytest.mark.parametrize(
    ("answer", "speaks_tls", "uses_tls", "word"),
    [
        (b"\0\0\0\x10\0\0\0\7\0\0", False, False, None),
        (b"\x15\x03\x03\0\2", True, False, "speaks TLS"),
        (b"", True, False, "speaks TLS"),
        (b"", False, False, "does not answer"),
        (b"HTTP/1.1 400", False, False, "HTTP server"),
        (b"SSH-2.0", False, False, "does not speak Kafka's protocol"),
    ],
)
def test_who_answers(answer: bytes, speaks_tls: bool, uses_tls: bool, word: str | None) -> None:
    cause = cause_by_answer(answer, speaks_tls, uses_tls)
    assert cause is None if word is None else cause is not None and word in cause.found


@pytest.mark.parametrize(
    ("skew_ms", "status", "word"),
    [
        (400, Status.OK, "0.4 s"),
        (90_000, Status.WARNING, "90 s ahead of"),
        (-90_000, Status.WARNING, "90 s behind"),
    ],
)
def test_clocks(skew_ms: int, status: Status, word: str) -> None:
    finding = skew_finding("controller 1", skew_ms)
    assert finding.status is status
    assert word in finding.found
