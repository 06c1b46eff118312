"""`--add-scram`: what is read, and which sentence refuses what is not."""

from __future__ import annotations

from base64 import b64encode

import pytest

from kraftrio.broker.node.security.first_users import FirstUserError, first_credentials
from kraftrio.kraft_meta.metadata.security_records import UserScramCredentialRecord
from kraftrio.wire.sasl.scram_keys import ScramMechanism, credential_of, salted_password


def read(*texts: str) -> tuple[UserScramCredentialRecord, ...]:
    return first_credentials(texts, lambda size: b"r" * size)


def test_passwords_are_salted() -> None:
    first, second = read(
        "SCRAM-SHA-256=[name=admin,password=se cret]",
        ' SCRAM-SHA-512 = [ name="a,b", iterations=8192 , salt="c2FsdA==",password=x=y]',
    )
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, "se cret", b"r" * 20, 4096)
    assert first == UserScramCredentialRecord(
        "admin", 1, *credential_of(ScramMechanism.SCRAM_SHA_256, salted, b"r" * 20, 4096)
    )
    salted = salted_password(ScramMechanism.SCRAM_SHA_512, "x=y", b"salt", 8192)
    assert second == UserScramCredentialRecord(
        "a,b", 2, *credential_of(ScramMechanism.SCRAM_SHA_512, salted, b"salt", 8192)
    )


def test_a_password_may_come_salted() -> None:
    text = b64encode(b"salted").decode()
    [one] = read(f'SCRAM-SHA-256=[name=admin,salt="c2FsdA==",saltedpassword="{text}"]')
    assert one == UserScramCredentialRecord(
        "admin", 1, *credential_of(ScramMechanism.SCRAM_SHA_256, b"salted", b"salt", 4096)
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("admin:secret", "a SCRAM user is given as"),
        ("SCRAM-SHA-256=name=a,password=secret", "a SCRAM user is given as"),
        ("SCRAM-SHA-1=[name=a,password=secret]", "SCRAM-SHA-1 is no SCRAM mechanism"),
        ("SCRAM-SHA-256=[password=secret]", "a SCRAM user has a name"),
        ("SCRAM-SHA-256=[name=a]", "the user a has a password, or a saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=]", "the password of the user a is empty"),
        (
            "SCRAM-SHA-256=[name=a,password=secret,saltedpassword=YQ==,salt=YQ==]",
            "the user a has a password, or a saltedpassword",
        ),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "the saltedpassword of the user a has no"),
        ("SCRAM-SHA-256=[name=a,password=secret,salt=!]", "salt of a SCRAM user is not base64"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=1]", "iterations is a number from"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=x]", "iterations is a number from"),
        ("SCRAM-SHA-256=[name=a,password=secret,role=x]", "a SCRAM user has the fields"),
        ("SCRAM-SHA-256=[name=a,name=b,password=secret]", "a SCRAM user has the fields"),
        ("SCRAM-SHA-256=[secret]", "the fields of a SCRAM user are NAME=VALUE"),
    ],
)
def test_what_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(FirstUserError) as refused:
        read(text)
    assert str(refused.value).startswith(sentence)
    assert "secret" not in str(refused.value)


def test_one_credential_comes_once() -> None:
    read("SCRAM-SHA-256=[name=a,password=b]", "SCRAM-SHA-512=[name=a,password=b]")
    with pytest.raises(FirstUserError):
        read("SCRAM-SHA-256=[name=a,password=b]", "SCRAM-SHA-256=[name=a,password=c]")
