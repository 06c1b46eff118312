"""Who must not get in is refused, and the client reports it as it does with Apache Kafka.

The tables below have the words of each client: they hold for both kinds of broker. Two things are
left to a server's library: which alert of TLS it sends (a bad certificate, one of an unknown
authority, none at all), and whether it sends the authority's certificate, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.secured.access import Access
from tests.conformance.secured.broker import SecuredBroker
from tests.conformance.secured.programs import NAMES, Program, Refused

pytestmark = scenarios.MARKS

Names = Callable[[], str]

_WRONG_SCRAM = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    " SCRAM-SHA-512"
)
_WRONG_PLAIN = "Authentication failed: Invalid username or password"


def accesses(secured: SecuredBroker) -> dict[str, Access]:
    """Return the ways in that must fail, by what is wrong with them."""
    ssl = secured.access("SSL")
    return {
        "wrong password": secured.access("SASL_SSL", "SCRAM-SHA-512").but(password="wrong"),
        "wrong password, plain": secured.access("SASL_SSL", "PLAIN").but(password="wrong"),
        "other authority": ssl.but(ca=secured.other_ca),
        "stranger's certificate": ssl.but(identity=secured.stranger),
        "no certificate": ssl.but(identity=None),
        "expired": secured.access("EXPIRED"),
        "not yet valid": secured.access("FUTURE"),
        "other host": secured.access("ELSEWHERE"),
        "plaintext at tls": ssl.but(protocol="PLAINTEXT"),
        "tls at plaintext": ssl.but(address=secured.access("PLAINTEXT").address),
    }


# In the order above.
_CASES = (
    "wrong password",
    "wrong password, plain",
    "other authority",
    "stranger's certificate",
    "no certificate",
    "expired",
    "not yet valid",
    "other host",
    "plaintext at tls",
    "tls at plaintext",
)
_JAVA_SAYS = "SslAuthenticationException: "
_VERIFY = "certificate verify failed"
_PYTHON_VERIFY = r"\[SSL: CERTIFICATE_VERIFY_FAILED\] certificate verify failed: "
_STRANGE = "(unable to get local issuer certificate|self-signed certificate in certificate chain)"
_X509 = "failed to verify certificate: x509: "
SAYS: dict[str, tuple[str, ...]] = {
    "kraftrio": (
        f"SaslAuthenticationError: .*{_WRONG_SCRAM}",
        f"SaslAuthenticationError: .*{_WRONG_PLAIN}",
        f"SslAuthenticationError: .*{_STRANGE}",
        "SslAuthenticationError: .*the peer refused: ",
        "SslAuthenticationError: .*the peer refused: ",
        "SslAuthenticationError: .*certificate has expired",
        "SslAuthenticationError: .*certificate is not yet valid",
        "SslAuthenticationError: .*not valid for 'localhost'",
        "TimedOutError: ",
        "TimedOutError: .*within the handshake",
    ),
    "java": (
        f"SaslAuthenticationException: {_WRONG_SCRAM}",
        f"SaslAuthenticationException: {_WRONG_PLAIN}",
        f"{_JAVA_SAYS}SSL handshake failed.*unable to find valid certification path",
        f"{_JAVA_SAYS}Failed to process post-handshake messages.*Received fatal alert",
        f"{_JAVA_SAYS}Failed to process post-handshake messages.*Received fatal alert",
        f"{_JAVA_SAYS}SSL handshake failed.*validity check failed",
        f"{_JAVA_SAYS}SSL handshake failed.*validity check failed",
        f"{_JAVA_SAYS}SSL handshake failed.*No subject alternative DNS name matching localhost",
        "TimeoutException: (The AdminClient thread has exited|Timed out waiting for a node)",
        "TimeoutException: Timed out waiting for a node|SSL handshake failed",
    ),
    "kcat": (
        f"Authentication failure: .*{_WRONG_SCRAM}",
        f"Authentication failure: .*{_WRONG_PLAIN}",
        _VERIFY,
        "Receive failed: .*SSL alert number",
        "Receive failed: .*SSL alert number",
        _VERIFY,
        _VERIFY,
        _VERIFY,
        r"Disconnected while requesting ApiVersion: .*\(connecting to a SSL listener\?\)",
        "unexpected eof while reading",
    ),
    "confluent-kafka": (
        f"SASL authentication error: {_WRONG_SCRAM}",
        f"SASL authentication error: {_WRONG_PLAIN}",
        _VERIFY,
        "Receive failed: .*SSL alert number",
        "Receive failed: .*SSL alert number",
        _VERIFY,
        _VERIFY,
        _VERIFY,
        "Disconnected: connection closed by peer: receive 0 after POLLIN",
        r"SSL connection closed by peer: connecting to a PLAINTEXT broker listener\?",
    ),
    "kafka-python": (
        "Unable to bootstrap.*socket disconnected",
        "Unable to bootstrap.*socket disconnected",
        f"{_PYTHON_VERIFY}{_STRANGE}",
        "Error receiving network data closing socket.*alert",
        "Error receiving network data closing socket.*alert",
        f"{_PYTHON_VERIFY}certificate has expired",
        f"{_PYTHON_VERIFY}certificate is not yet valid",
        f"{_PYTHON_VERIFY}Hostname mismatch",
        "Unable to bootstrap.*socket disconnected",
        r"\[SSL: UNEXPECTED_EOF_WHILE_READING\]|connection has been closed \(EOF\)",
    ),
    "aiokafka": (
        rf"\[Error 58\] SaslAuthenticationFailed: {_WRONG_SCRAM}",
        rf"\[Error 58\] SaslAuthenticationFailed: {_WRONG_PLAIN}",
        f"{_PYTHON_VERIFY}{_STRANGE}",
        r"Connection at localhost:\d+ closed",
        r"Connection at localhost:\d+ closed",
        f"{_PYTHON_VERIFY}certificate has expired",
        f"{_PYTHON_VERIFY}certificate is not yet valid",
        f"{_PYTHON_VERIFY}Hostname mismatch",
        r"Connection at localhost:\d+ closed",
        "Unable connect to",
    ),
    "kafkajs": (
        _WRONG_SCRAM,
        _WRONG_PLAIN,
        "unable to verify the first certificate|self-signed certificate in certificate chain",
        "SSL alert number",
        "SSL alert number",
        "certificate has expired",
        "certificate is not yet valid",
        "Host: localhost. is not in the cert's altnames",
        "Closed connection",
        "disconnected before secure TLS connection was established",
    ),
    "franz-go": (
        "error code 58",
        "error code 58",
        f"{_X509}certificate signed by unknown authority",
        "remote error: tls: ",
        "remote error: tls: ",
        f"{_X509}certificate has expired or is not yet valid",
        f"{_X509}certificate has expired or is not yet valid",
        f"{_X509}certificate is valid for elsewhere.example, not localhost",
        "appear to be a tls alert record|closed the connection immediately",
        "broker closed the connection immediately after a dial",
    ),
    "sarama": (
        _WRONG_SCRAM,
        _WRONG_PLAIN,
        f"{_X509}certificate signed by unknown authority",
        "remote error: tls: ",
        "remote error: tls: ",
        f"{_X509}certificate has expired or is not yet valid",
        f"{_X509}certificate has expired or is not yet valid",
        f"{_X509}certificate is valid for elsewhere.example, not localhost",
        "EOF",
        "EOF",
    ),
}


@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("name", NAMES)
def test_refused(
    secured: SecuredBroker,
    clients: dict[str, Program],
    name: str,
    case: str,
    unique_topic: Names,
    unique_group: Names,
) -> None:
    with pytest.raises(Refused) as caught:
        clients[name].round_trip(accesses(secured)[case], unique_topic(), unique_group())
    said = " ".join(str(caught.value).split())
    assert re.search(SAYS[name][_CASES.index(case)], said), said
