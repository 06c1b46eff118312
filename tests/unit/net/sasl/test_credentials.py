"""With what clients log in: what their settings make, and which sentence refuses what is wrong."""

from __future__ import annotations

import random

import pytest

from kraftrio.base.threads import run_in_worker_thread
from kraftrio.net.sasl.credentials import SaslSettingsError, client_credentials, nonces

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


async def first_message(mechanism: str, jaas: str) -> bytes:
    settings = {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    credentials = client_credentials(settings, random.Random(1), lambda: 0)
    assert credentials.mechanism == mechanism
    return (await credentials.new_exchange(run_in_worker_thread)).begin()


async def test_what_clients_say_first() -> None:
    user = "username='al,ice' password='secret'"
    assert await first_message("PLAIN", f"{PLAIN} required {user};") == b"\0al,ice\0secret"
    assert (await first_message("SCRAM-SHA-256", f"{SCRAM} required {user};")).startswith(
        b"n,,n=al=2Cice,r="
    )
    by_token = await first_message("SCRAM-SHA-512", f"{SCRAM} required {user} tokenauth=true;")
    assert by_token.endswith(b",tokenauth=true")
    claims = "unsecuredLoginStringClaim_sub=alice unsecuredLoginExtension_trace='1'"
    bearer = await first_message("OAUTHBEARER", f"{BEARER} required {claims};")
    assert bearer.startswith(b"n,,\x01auth=Bearer ") and bearer.endswith(b"\x01trace=1\x01\x01")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "sasl.mechanism is 'GSSAPI', which is not supported: the mechanisms are PLAIN, SCRAM"),
        ({"sasl.mechanism": "plain"}, "sasl.mechanism is 'plain', which is unknown"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config is not set"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "secret"},
            "sasl.jaas.config: the login module is not followed by a flag",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required username=a;"},
            "the JAAS text has no username and password",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{BEARER} required;"},
            f"the login module of PLAIN is {PLAIN}, not {BEARER}",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{SCRAM} required;"},
            f"the login module of OAUTHBEARER is {BEARER}, not {SCRAM}",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{BEARER} required;"},
            "an unsecured token has no claim sub",
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{BEARER} required clientSecret=secret;",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            },
            "sasl.oauthbearer.token.endpoint.url needs",
        ),
    ],
)
def test_what_is_refused(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(SaslSettingsError) as refused:
        client_credentials(settings, random.Random(1), lambda: 0)
    assert str(refused.value).startswith(sentence)
    assert "secret" not in str(refused.value).replace("client.secret", "")


def test_nonces_are_printable_and_differ() -> None:
    new_nonce = nonces(random.Random(1))
    first, second = new_nonce(), new_nonce()
    assert first != second and first.isascii() and "," not in first and len(first) == 32
