"""`sasl.jaas.config`: what is read, and which sentence refuses what is not."""

from __future__ import annotations

import pytest

from kraftrio.net.sasl.jaas import PLAIN_MODULE, JaasEntry, JaasError, parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            f'{PLAIN_MODULE} required username="a" password="b c";',
            {"username": "a", "password": "b c"},
        ),
        (
            f"{PLAIN_MODULE} REQUIRED\n  username=alice\n  user_bob='x=\";y';",
            {"username": "alice", "user_bob": 'x=";y'},
        ),
        (f"{PLAIN_MODULE} optional;", {}),
        (f'/* a */ {PLAIN_MODULE} required // b\n a="1" / c\n b="2";', {"a": "1", "b": "2"}),
        (f'{PLAIN_MODULE} required p="q\\"\\\\\\n\\101";', {"p": 'q"\\\nA'}),
        (f'{PLAIN_MODULE} required "user_a-b"="";', {"user_a-b": ""}),
        (
            f"{PLAIN_MODULE} required tokenauth=true serviceName=kafka.x-y_z$;",
            {"tokenauth": "true", "serviceName": "kafka.x-y_z$"},
        ),
    ],
)
def test_what_is_read(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == JaasEntry(PLAIN_MODULE, options)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no login module is named"),
        ("  // all of it\n", "no login module is named"),
        ("M", "the login module is not followed by a flag such as required"),
        ("M;", "the login module is not followed by a flag such as required"),
        ("M needed;", "'needed' is not a flag of a login module"),
        ("M required", "the entry does not end with a semicolon"),
        ("M required a=b", "the entry does not end with a semicolon"),
        ("M required password=;", "the option password has no value"),
        ("M required password=12secret;", "the option password has no value"),
        ("M required password 'secret';", "the option password has no value"),
        ("M required ='secret';", "the name of an option is wanted where '=' stands"),
        ("M required a='secret;", "a quoted value does not end on its line"),
        ("M required a='secret\n';", "a quoted value does not end on its line"),
        ("M required; M required;", "2 login modules are named, one is wanted"),
        ("= required;", "a login module is wanted where '=' stands"),
    ],
)
def test_what_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(JaasError) as refused:
        parse_jaas(text)
    assert str(refused.value).startswith(sentence)
    assert "secret" not in str(refused.value)


def test_values_are_not_shown() -> None:
    assert (
        repr(parse_jaas("M required password=secret;"))
        == "JaasEntry(module='M', options=['password'])"
    )
