"""What a failure on the way to a broker means, and what to do about it.

Owns `StepFinding` and the tables of causes, which are found by words in the messages of operating
systems and TLS libraries. Pure. Called by: `examination`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kraftrio.clients.cli.output import Row


class Status(Enum):
    """The result of a step."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class StepFinding(NamedTuple):
    """What one step found.

    Attributes:
        check: which step: "name", "port", ...
        subject: what was examined.
        found: what was found, in words.
        remedy: what to do; "" if nothing is wrong.
    """

    check: str
    subject: str
    status: Status
    found: str
    remedy: str = ""

    @property
    def row(self) -> Row:
        """The finding as a row."""
        return {**self._asdict(), "status": self.status.value}


def ok(check: str, subject: str, found: str) -> StepFinding:
    """A step that found nothing wrong."""
    return StepFinding(check, subject, Status.OK, found)


def warning(check: str, subject: str, found: str, remedy: str) -> StepFinding:
    """A step that found what works, but may not for long."""
    return StepFinding(check, subject, Status.WARNING, found, remedy)


def problem(check: str, subject: str, found: str, remedy: str) -> StepFinding:
    """A step that found what does not work."""
    return StepFinding(check, subject, Status.PROBLEM, found, remedy)


class Cause(NamedTuple):
    """The cause of a failure, and the step (`check`) that it concerns."""

    check: str
    found: str
    remedy: str


_HANDSHAKE = (
    (
        ("expired",),
        "the broker's certificate has expired",
        "renew the certificate in the broker's ssl.keystore",
    ),
    (
        ("not yet valid",),
        "the broker's certificate is not valid yet",
        "compare the clocks of this machine and of the one that made the certificate",
    ),
    (
        ("hostname", "ip address mismatch", "doesn't match", "not valid for"),
        "the broker's certificate is for another name",
        "connect by a name that is in the certificate, or have one made with this name",
    ),
    (
        ("self-signed", "self signed", "unable to get", "unknown ca", "unknown authority"),
        "the broker's certificate is of an authority that is not trusted here",
        "put that authority's certificate into ssl.truststore.location",
    ),
    (
        ("certificate required", "handshake failure", "bad certificate", "peer did not return"),
        "the broker does not accept this client's certificate, or wants one",
        "set ssl.keystore.location to a certificate that the broker's truststore knows",
    ),
    (
        ("wrong version", "record layer", "unexpected eof", "eof occurred", "not tls"),
        "the listener does not speak TLS",
        "set security.protocol as the listener's, or use the port of the TLS listener",
    ),
)


def cause_of_handshake(sentence: str) -> Cause:
    """Return the cause of a failed TLS handshake."""
    lowered = sentence.lower()
    for words, found, remedy in _HANDSHAKE:
        if any(word in lowered for word in words):
            return Cause("certificate" if "certificate" in found else "tls", found, remedy)
    return Cause("tls", sentence, "compare ssl.* here with the broker's listener")


def cause_of_login(sentence: str) -> Cause:
    """Return the cause of a refused login."""
    if "mechanism" in sentence.lower():
        return Cause(
            "login",
            sentence,
            "set sasl.mechanism to one of the broker's sasl.enabled.mechanisms",
        )
    return Cause(
        "login",
        f"the broker does not accept who this client says it is: {sentence}",
        "correct user and password in sasl.jaas.config; 'kraftrio user list' shows who there is",
    )


def cause_of_connecting(error: OSError, subject: str) -> Cause:
    """Return the cause of a failed connection."""
    lowered = str(error).lower()
    if "refused" in lowered:
        return Cause(
            "port",
            f"nobody listens at {subject} (connection refused)",
            "start the broker, or correct the port: 'ss -ltn' there shows what listens",
        )
    if "unreachable" in lowered or "no route" in lowered:
        return Cause(
            "port",
            f"there is no way to {subject}: {error.strerror or error}",
            "check the network and the routes of this machine",
        )
    return Cause("port", f"{subject}: {error.strerror or error}", "check the network")


def no_answer(subject: str, timeout_s: float) -> Cause:
    """Return the cause of a connection that is neither accepted nor refused."""
    return Cause(
        "port",
        f"{subject} did not take the connection within {timeout_s:g} s",
        "a firewall on the way drops it, or the broker is stuck: open the port, or look at its log",
    )


def cause_by_answer(answer: bytes, speaks_tls: bool, uses_tls: bool) -> Cause | None:
    """Return what listens, by the answer to an ApiVersions request; None: a broker."""
    if speaks_tls and not uses_tls:
        return Cause(
            "protocol",
            "the listener speaks TLS, and this client does not",
            "set security.protocol=SSL (or SASL_SSL) and ssl.truststore.location in --config",
        )
    if answer.startswith((b"HTTP/", b"<htm", b"<!DO")):
        return Cause("protocol", "an HTTP server listens there", "use the port of a Kafka listener")
    if not answer:
        return Cause(
            "protocol",
            "what listens there does not answer, or closes the connection",
            "check that it is a Kafka listener, and the broker's log for why it closes it",
        )
    if len(answer) < 8 or answer[4:8] != b"\0\0\0\7":
        return Cause(
            "protocol", "what listens there does not speak Kafka's protocol", "correct the port"
        )
    return None


def skew_finding(subject: str, skew_ms: int) -> StepFinding:
    """Return the finding for the difference of two clocks."""
    seconds = abs(skew_ms) / 1000
    if seconds < 5:
        return ok("clock", subject, f"differs from this machine's by {seconds:.1f} s")
    ahead = "ahead of" if skew_ms > 0 else "behind"
    return warning(
        "clock",
        subject,
        f"the cluster's clock is {seconds:.0f} s {ahead} this machine's",
        "let both synchronize their clocks (NTP): timestamps, retention and certificates go by it",
    )
